"""What an image's build needs of this machine's own network: its certificate authorities, its package index."""

from __future__ import annotations

import configparser
from collections.abc import Mapping
from pathlib import Path

AUTHORITY_VARIABLES = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
INDEX_SETTINGS = ("index-url", "extra-index-url", "trusted-host", "timeout", "retries", "proxy")
DEBIAN_AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"


def authorities(environment: Mapping[str, str]) -> Path | None:
    """The bundle that this environment names, or None where the image's own certificates do."""
    named = (Path(environment[v]) for v in AUTHORITY_VARIABLES if environment.get(v))
    return next((path for path in named if path.is_file()), None)


def pip_configuration(environment: Mapping[str, str], files: list[Path]) -> str:
    """A pip.conf for the build: the index settings of this machine's pip, or of its uv, and the authorities.

    Folders of this machine (find-links, a cache) are left out, for the build cannot see them.
    """
    settings: dict[str, str] = {}
    for path in files:
        parser = configparser.RawConfigParser()
        parser.read(path)
        for section in ("global", "install"):
            if parser.has_section(section):
                settings |= dict(parser.items(section))
    for key, variable in (("index-url", "UV_DEFAULT_INDEX"), ("index-url", "UV_INDEX_URL")):
        if environment.get(variable):
            settings.setdefault(key, environment[variable])
    for key in INDEX_SETTINGS:
        if value := environment.get(f"PIP_{key.upper().replace('-', '_')}"):
            settings[key] = value
    lines = [f"{key} = {settings[key]}" for key in INDEX_SETTINGS if key in settings]
    if authorities(environment):
        lines.append(f"cert = {DEBIAN_AUTHORITIES}")
    return "\n".join(["[global]", *lines, ""])


def pip_files(home: Path) -> list[Path]:
    """Where pip reads its settings, the later file winning."""
    return [Path("/etc/pip.conf"), home / ".pip" / "pip.conf", home / ".config" / "pip" / "pip.conf"]
