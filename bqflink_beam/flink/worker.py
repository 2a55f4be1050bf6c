"""A Beam worker for Python without Docker, for Flink's PROCESS and EXTERNAL environments.

Beam's containers start with a small program that asks the runner what to run, fetches the
pipeline's files and then becomes the worker. This is that program in Python, for a Python
that has Beam and the user's modules installed: it installs nothing.

    python -m bqflink_beam.flink.worker --id=… --provision_endpoint=…
"""

import argparse
import os
import pathlib
import shlex
import sys
import tempfile
from collections.abc import Sequence
from typing import NoReturn

import grpc
from apache_beam.portability import common_urns
from apache_beam.portability.api import (
    beam_artifact_api_pb2,
    beam_artifact_api_pb2_grpc,
    beam_provision_api_pb2,
    beam_provision_api_pb2_grpc,
    beam_runner_api_pb2,
    endpoints_pb2,
)
from google.protobuf import json_format, text_format

_ANSWER_TIMEOUT_S = 60.0
_DOWNLOAD_TIMEOUT_S = 600.0
_NO_SIZE_LIMIT = (("grpc.max_receive_message_length", -1),)
_ENDPOINTS = ("control_endpoint", "logging_endpoint", "artifact_endpoint", "provision_endpoint")


def write_worker_script(path: str | os.PathLike, *, python: str = sys.executable) -> pathlib.Path:
    """Writes an executable that starts a worker with this Python.

    For ``--environment_type=PROCESS --environment_options=process_command=PATH``, and for a
    `FlinkWorkerPool`. Its output goes to stderr: nobody reads the stdout of a worker, and a full
    pipe would stop it.
    """
    script = pathlib.Path(path)
    script.write_text(
        f'#!/bin/sh\nexec {shlex.quote(python)} -m bqflink_beam.flink.worker "$@" >&2\n'
    )
    script.chmod(0o755)
    return script


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Becomes the worker that the runner asks for."""
    parser = argparse.ArgumentParser(prog="python -m bqflink_beam.flink.worker")
    parser.add_argument("--id", required=True)
    parser.add_argument("--semi_persist_dir")
    for name in _ENDPOINTS:
        parser.add_argument(f"--{name}", default="")
    asked, _ = parser.parse_known_args(arguments)
    folder = pathlib.Path(asked.semi_persist_dir or tempfile.mkdtemp(prefix="bqflink-worker-"))

    info = _provision(asked.provision_endpoint, asked.id)
    if info.dependencies:
        address = info.artifact_endpoint.url or asked.artifact_endpoint
        _fetch_artifacts(address, asked.id, info.dependencies, folder / "staged")
    environment = {
        **os.environ,
        "WORKER_ID": asked.id,
        "SEMI_PERSISTENT_DIRECTORY": str(folder),
        "PIPELINE_OPTIONS": json_format.MessageToJson(info.pipeline_options),
        "RUNNER_CAPABILITIES": " ".join(info.runner_capabilities),
        "CONTROL_API_SERVICE_DESCRIPTOR": _described(info.control_endpoint, asked.control_endpoint),
        "LOGGING_API_SERVICE_DESCRIPTOR": _described(info.logging_endpoint, asked.logging_endpoint),
    }
    if info.status_endpoint.url:
        environment["STATUS_API_SERVICE_DESCRIPTOR"] = _described(info.status_endpoint, "")
    command = [sys.executable, "-m", "apache_beam.runners.worker.sdk_worker_main"]
    os.execve(sys.executable, command, environment)


def _provision(address: str, worker_id: str) -> beam_provision_api_pb2.ProvisionInfo:
    with grpc.insecure_channel(address) as channel:
        return (
            beam_provision_api_pb2_grpc.ProvisionServiceStub(channel)
            .GetProvisionInfo(
                beam_provision_api_pb2.GetProvisionInfoRequest(),
                metadata=(("worker_id", worker_id),),
                timeout=_ANSWER_TIMEOUT_S,
                wait_for_ready=True,
            )
            .info
        )


def _fetch_artifacts(
    address: str,
    worker_id: str,
    wanted: Sequence[beam_runner_api_pb2.ArtifactInformation],
    folder: pathlib.Path,
) -> None:
    """Downloads the files that were staged with the pipeline, under the names it gave them."""
    folder.mkdir(parents=True, exist_ok=True)
    metadata = (("worker_id", worker_id),)
    with grpc.insecure_channel(address, options=_NO_SIZE_LIMIT) as channel:
        stub = beam_artifact_api_pb2_grpc.ArtifactRetrievalServiceStub(channel)
        resolved = stub.ResolveArtifacts(
            beam_artifact_api_pb2.ResolveArtifactsRequest(artifacts=wanted),
            metadata=metadata,
            timeout=_ANSWER_TIMEOUT_S,
        )
        for number, artifact in enumerate(resolved.replacements):
            chunks = stub.GetArtifact(
                beam_artifact_api_pb2.GetArtifactRequest(artifact=artifact),
                metadata=metadata,
                timeout=_DOWNLOAD_TIMEOUT_S,
            )
            with open(folder / _staged_name(artifact, number), "wb") as file:
                for chunk in chunks:
                    file.write(chunk.data)


def _staged_name(artifact: beam_runner_api_pb2.ArtifactInformation, number: int) -> str:
    if artifact.role_urn != common_urns.artifact_roles.STAGING_TO.urn:
        return f"artifact-{number}"
    role = beam_runner_api_pb2.ArtifactStagingToRolePayload.FromString(artifact.role_payload)
    # A name from the runner must not lead out of the folder.
    return os.path.basename(role.staged_name) or f"artifact-{number}"


def _described(told: endpoints_pb2.ApiServiceDescriptor, flag: str) -> str:
    descriptor = told if told.url else endpoints_pb2.ApiServiceDescriptor(url=flag)
    return str(text_format.MessageToString(descriptor))


if __name__ == "__main__":
    main()
