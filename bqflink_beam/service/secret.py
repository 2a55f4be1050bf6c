"""Text that must not be seen: not in a repr, not in a log, not in a pickle.

A pipeline is pickled into its proto, which runners store and show. A secret given
inline therefore pickles as a reference into a table of this process; another process
that unpickles the reference learns nothing and is told so at first use.
"""

import dataclasses
import os
import threading
import uuid

from bqflink_beam.errors import ConfigError

_PROCESS = uuid.uuid4().hex
_LOCK = threading.Lock()
_TEXT_BY_REFERENCE: dict[str, str] = {}
_REFERENCE_BY_TEXT: dict[str, str] = {}


@dataclasses.dataclass(frozen=True)
class Secret:
    """A reference to a text kept in this process. Equal texts give equal secrets."""

    reference: str

    @staticmethod
    def of(text: str) -> "Secret":
        with _LOCK:
            reference = _REFERENCE_BY_TEXT.get(text)
            if reference is None:
                reference = f"{_PROCESS}-{len(_REFERENCE_BY_TEXT)}"
                _REFERENCE_BY_TEXT[text] = reference
                _TEXT_BY_REFERENCE[reference] = text
            return Secret(reference)

    def reveal(self) -> str:
        """Returns the text.

        Raises:
            ConfigError: this is not the process the secret was given to.
        """
        text = _TEXT_BY_REFERENCE.get(self.reference)
        if text is None:
            raise ConfigError(
                "credentials given inline stay in the process that built the pipeline, and this "
                "worker is another one; use a file that workers can read, "
                "ServiceAccountJson.from_environment('VARIABLE'), or application default credentials"
            )
        return text

    def __repr__(self) -> str:
        return "<secret>"


@dataclasses.dataclass(frozen=True)
class EnvironmentSecret:
    """A secret in an environment variable, read where and when it is used."""

    variable: str

    def reveal(self) -> str:
        """Returns the text.

        Raises:
            ConfigError: the variable is not set in this process.
        """
        text = os.environ.get(self.variable)
        if not text:
            raise ConfigError(
                f"environment variable {self.variable} must hold the credentials, and is not set"
            )
        return text

    def __repr__(self) -> str:
        return f"<environment variable {self.variable}>"
