"""REST methods on datasets."""

import copy
from collections.abc import Mapping
from typing import Any

from bqflink_beam.emulator.api_errors import invalid, missing
from bqflink_beam.emulator.pages import etag_of, flag_of, page
from bqflink_beam.emulator.refused import Refused
from bqflink_beam.emulator.store import Store

_LISTED = ("kind", "id", "datasetReference", "location", "labels", "friendlyName")
_READ_ONLY = ("kind", "id", "etag", "selfLink", "creationTime", "lastModifiedTime", "location")


class Datasets:
    """``datasets.*`` of one server."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def insert(self, project: str, body: Mapping[str, Any]) -> dict[str, Any]:
        name = (body.get("datasetReference") or {}).get("datasetId")
        if not name:
            raise missing("datasetReference.datasetId")
        if not name.replace("_", "a").isalnum() or not name.isascii() or len(name) > 1024:
            raise invalid(
                f'Invalid dataset ID "{name}". Dataset IDs must be alphanumeric '
                "(plus underscores) and must be at most 1024 characters long."
            )
        return self._store.create_dataset(project, name, body)

    def get(self, project: str, dataset: str) -> dict[str, Any]:
        found = self._store.get_dataset(project, dataset)
        if found is None:
            raise dataset_not_found(project, dataset)
        return found

    def list(self, project: str, parameters: Mapping[str, str]) -> dict[str, Any]:
        wanted = _label_filter(parameters.get("filter", ""))
        show_hidden = flag_of(parameters, "all")
        found = [
            {key: dataset[key] for key in _LISTED if key in dataset}
            for dataset in self._store.list_datasets(project)
            if (show_hidden or not dataset["datasetReference"]["datasetId"].startswith("_"))
            and _has_labels(dataset.get("labels") or {}, wanted)
        ]
        items, token = page(found, parameters)
        answer: dict[str, Any] = {"kind": "bigquery#datasetList", "datasets": items}
        answer["etag"] = etag_of(answer)
        return {**answer, "nextPageToken": token} if token else answer

    def patch(
        self, project: str, dataset: str, body: Mapping[str, Any], if_match: str | None
    ) -> dict[str, Any]:
        """Changes what the body names; null takes away."""
        with self._store.transaction() as change:
            have = self.get(project, dataset)
            check_etag(have, if_match)
            _refuse_move(have, body)
            return change.update_dataset(project, dataset, merge_patch(have, body, _READ_ONLY))

    def update(
        self, project: str, dataset: str, body: Mapping[str, Any], if_match: str | None
    ) -> dict[str, Any]:
        """Puts the body in the dataset's place."""
        with self._store.transaction() as change:
            have = self.get(project, dataset)
            check_etag(have, if_match)
            _refuse_move(have, body)
            kept = {key: have[key] for key in (*_READ_ONLY, "datasetReference") if key in have}
            return change.update_dataset(project, dataset, {**body, **kept})

    def delete(self, project: str, dataset: str, parameters: Mapping[str, str]) -> None:
        self._store.delete_dataset(
            project, dataset, delete_contents=flag_of(parameters, "deleteContents")
        )


def dataset_not_found(project: str, dataset: str) -> Refused:
    """Returns REST's refusal for a dataset that does not exist."""
    return Refused(f"Not found: Dataset {project}:{dataset}", code="NOT_FOUND")


def check_etag(have: Mapping[str, Any], if_match: str | None) -> None:
    """Refuses a change of something that changed since the caller saw it (HTTP 412)."""
    if if_match not in (None, "*", have["etag"]):
        raise Refused("Precondition check failed.", code="FAILED_PRECONDITION")


def merge_patch(
    have: Mapping[str, Any], body: Mapping[str, Any], read_only: tuple[str, ...]
) -> dict[str, Any]:
    """Returns a resource with a patch over it: objects are merged, null takes away."""
    result = copy.deepcopy(dict(have))
    for key, value in body.items():
        if key in read_only:
            continue
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(result.get(key), dict):
            result[key] = merge_patch(result[key], value, ())
        else:
            result[key] = copy.deepcopy(value)
    return result


def _refuse_move(have: Mapping[str, Any], body: Mapping[str, Any]) -> None:
    location = body.get("location")
    if location and location != have["location"]:
        raise invalid("Dataset location cannot be changed")


def _label_filter(text: str) -> list[tuple[str, str | None]]:
    """Reads ``labels.name[:value]``, several of them joined by AND or blanks."""
    wanted = []
    for part in text.split():
        if part.upper() == "AND":
            continue
        if not part.startswith("labels."):
            raise invalid(f"Invalid filter: {text}")
        name, colon, value = part[len("labels.") :].partition(":")
        wanted.append((name, value if colon else None))
    return wanted


def _has_labels(labels: Mapping[str, str], wanted: list[tuple[str, str | None]]) -> bool:
    return all(name in labels and value in (None, labels[name]) for name, value in wanted)
