"""What the operator is told at start. Law: the only module that reads flags and the environment."""

from __future__ import annotations

import argparse
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, IPvAnyAddress, ValidationError

LogLevel = Literal["debug", "info", "warning"]


class Settings(BaseModel):
    """Everything a person may choose about the operator's own process; durations in seconds."""

    model_config = ConfigDict(frozen=True)

    engine_image: str = Field(min_length=1)
    identity: str = Field(min_length=1)
    lease_namespace: str = "tidegate-system"
    lease_name: str = "tidegate-operator"
    lease_duration: int = Field(default=15, ge=3)
    scrape_interval: float = Field(default=2, ge=0.2, le=60)
    scrape_timeout: float = Field(default=1.5, ge=0.1, le=60)
    metrics_port: int = Field(default=8080, ge=0, le=65535)
    address: IPvAnyAddress | None = None
    """Where other operators reach this one; None: they cannot."""
    external_metrics_port: int = Field(default=8443, ge=1, le=65535)
    external_metrics_tls: Path | None = None
    """A folder with tls.crt and tls.key; None: external.metrics.k8s.io is not served."""
    log_level: LogLevel = "info"


class SettingsError(ValueError):
    """A flag or a variable that cannot be used; the message names it, its value and the remedy."""


def read(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Settings from flags, then the environment, then defaults. Raises SettingsError; exits for `--help`."""
    given = {key: value for key, value in vars(_parser().parse_args(arguments)).items() if value is not None}
    from_environment = {
        field: environment[variable]
        for field, variable in (
            ("engine_image", "TIDEGATE_ENGINE_IMAGE"),
            ("identity", "POD_NAME"),
            ("lease_namespace", "POD_NAMESPACE"),
            ("address", "POD_IP"),
        )
        if environment.get(variable)
    }
    chosen = {"identity": socket.gethostname()} | from_environment | given
    if "engine_image" not in chosen:
        raise SettingsError("--engine-image is not given: name the engine's image, or set TIDEGATE_ENGINE_IMAGE")
    try:
        return Settings.model_validate(chosen)
    except ValidationError as error:
        first = error.errors()[0]
        flag = "--" + str(first["loc"][0]).replace("_", "-")
        raise SettingsError(f"{flag}: {first['msg']}, got {first['input']!r}") from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tidegate-operator", allow_abbrev=False)
    parser.add_argument("--engine-image", metavar="IMAGE", help="for services without spec.engine.image")
    parser.add_argument("--identity", metavar="NAME", help="this process's name as a leader (POD_NAME)")
    parser.add_argument("--address", metavar="IP", help="where other operators reach this one (POD_IP)")
    parser.add_argument("--lease-namespace", metavar="NAME", help="where the leader's Lease lives (POD_NAMESPACE)")
    parser.add_argument("--lease-name", metavar="NAME")
    parser.add_argument("--lease-duration", metavar="SECONDS", help="how long a leader that fell silent is waited for")
    parser.add_argument("--scrape-interval", metavar="SECONDS", help="between two looks at every engine pod")
    parser.add_argument("--scrape-timeout", metavar="SECONDS", help="for one pod's answer")
    parser.add_argument("--metrics-port", metavar="N", help="GET /metrics and GET /healthz; 0 for any free one")
    parser.add_argument("--external-metrics-port", metavar="N", help="external.metrics.k8s.io, for HPAs")
    parser.add_argument("--external-metrics-tls", metavar="FOLDER", help="its tls.crt and tls.key; else it is off")
    parser.add_argument("--log-level", metavar="LEVEL", help="debug, info or warning")
    return parser
