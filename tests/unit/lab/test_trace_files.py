"""Reading traces: whatever people have, and one clear line about what is none."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from tidegate_lab.traffic.instant import instant
from tidegate_lab.traffic.named import TRACES, named
from tidegate_lab.traffic.read import TraceError, Unit, read_trace

AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
)
OWN = "when,in,out\n1.5,10,3\n2,20,4\n"

READ = {
    "Azure's dates count from the first, to 100 ns": ("a.csv", AZURE, {}, [0, 4.314579], [374, 396], [44, 109]),
    "a column of seconds from the beginning stays as it is": (
        "s.csv", "timestamp_s,input_tokens,output_tokens,client_id\n0.5,1,2,9\n2.5,3,4,9\n", {},
        [0.5, 2.5], [1, 3], [2, 4],
    ),
    "AIBrix counts milliseconds": (
        "b.jsonl", '{"timestamp": 500, "input_length": 5, "output_length": 6}\n\n'
        '{"timestamp": 2000, "input_length": 7, "output_length": 8}\n', {}, [0.5, 2.0], [5, 7], [6, 8],
    ),
    "columns of any name, by argument": (
        "o.csv", OWN, {"time": "when", "prompt": "in", "output": "out"}, [1.5 - 1.5, 0.5], [10, 20], [3, 4],
    ),
    "milliseconds by the column's name": (
        "m.csv", "at_ms;in;out\n100;1;1\n300;2;2\n",
        {"time": "at_ms", "prompt": "in", "output": "out"}, [0.1, 0.3], [1, 2], [1, 2],
    ),
    "milliseconds by flag": (
        "f.csv", "at\tin\tout\n0\t1\t1\n300\t2\t2\n",
        {"time": "at", "prompt": "in", "output": "out", "unit": Unit.MILLISECONDS}, [0, 0.3], [1, 2], [1, 2],
    ),
    "seconds since 1970": (
        "e.jsonl", '{"t": 1787267980.25, "in": 1, "out": 1}\n{"t": 1787267981.0, "in": 1, "out": 1}\n',
        {"time": "t", "prompt": "in", "output": "out"}, [0, 0.75], [1, 1], [1, 1],
    ),
    "milliseconds since 1970, which nobody has to say": (
        "e.csv", "t,in,out\n1787267980250,1,1\n1787267981000,1,1\n",
        {"time": "t", "prompt": "in", "output": "out"}, [0, 0.75], [1, 1], [1, 1],
    ),
    "a space after a comma, a byte order mark and the ends of lines of another system": (
        "w.csv", "\ufefftimestamp_s, input_tokens, output_tokens\r\n0.5, 1, 2\r\n2.5, 3, 4\r\n", {},
        [0.5, 2.5], [1, 3], [2, 4],
    ),
    "text of any length beside the lengths": (
        "t.csv", f'timestamp_s,text,input_tokens,output_tokens\n0.5,"{"word, " * 30_000}",1,2\n2.5,,3,4\n', {},
        [0.5, 2.5], [1, 3], [2, 4],
    ),
    "dates with zones are moments": (
        "z.csv", "t,in,out\n2023-11-16T18:00:00+02:00,1,1\n2023-11-16T16:00:01Z,1,1\n",
        {"time": "t", "prompt": "in", "output": "out"}, [0, 1], [1, 1], [1, 1],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", READ)
@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "gzipped"])
def test_reading(case: str, zipped: bool, tmp_path: Path) -> None:
    file, text, flags, at, prompt, output = READ[case]
    path = tmp_path / file
    path.write_bytes(gzip.compress(text.encode()) if zipped else text.encode())
    trace = read_trace(path, **flags)
    assert trace.at.tolist() == pytest.approx(at, abs=1e-6)
    assert (trace.prompt.tolist(), trace.output.tolist()) == (prompt, output)
    assert (trace.name, trace.seconds, trace.notes) == (file.split(".")[0], trace.at[-1], ())


def test_what_is_mended_is_said(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("timestamp_s,input_tokens,output_tokens\n3,0,5\n1,2,0\n2,7,8\n")
    trace = read_trace(path)
    assert (trace.at.tolist(), trace.prompt.tolist(), trace.output.tolist()) == ([1, 2, 3], [2, 7, 1], [1, 8, 5])
    assert trace.notes == (
        "the requests were not in order of arrival, and were sorted",
        "1 prompts of 0 tokens, or null, count as 1",
        "1 answers of 0 tokens, or null, count as 1",
    )


REFUSED = {
    "a negative length": (
        "timestamp_s,input_tokens,output_tokens\n1,2,3\n2,-4,1\n",
        ":3: input_tokens '-4' is no number of tokens; give a whole number from 0",
    ),
    "half a token": (
        "timestamp_s,input_tokens,output_tokens\n1,2,3.5\n",
        ":2: output_tokens '3.5' is no number of tokens; give a whole number from 0",
    ),
    "NaN for a time": (
        "timestamp_s,input_tokens,output_tokens\nnan,2,3\n",
        ":2: timestamp_s 'nan' is no time; give seconds, milliseconds or an ISO 8601 date",
    ),
    "a row cut short": (
        "timestamp_s,input_tokens,output_tokens\n1,2\n",
        ":2: has 2 cells under a header of 3; give one for each",
    ),
    "unknown columns": (
        "when,in,out\n1,2,3\n",
        ": its columns are of no known format (when, in, out); name those of arrival, prompt tokens and output tokens "
        "(--time-column, --prompt-column, --output-column)",
    ),
    "a time beyond all clocks": (
        "timestamp_s,input_tokens,output_tokens\n1e300,2,3\n",
        ":2: timestamp_s '1e300' is no time; give seconds, milliseconds or an ISO 8601 date",
    ),
    "a year beyond all clocks": (
        "timestamp_s,input_tokens,output_tokens\n9999-01-01T00:00:00Z,2,3\n",
        ":2: timestamp_s '9999-01-01T00:00:00Z' is no time; give seconds, milliseconds or an ISO 8601 date",
    ),
    "more tokens than any number": (
        '{"timestamp": 1, "input_length": 1' + "0" * 400 + ', "output_length": 6}', ":1: input_length 1000",
    ),
    "two columns of one name": (
        "timestamp_s,input_tokens,output_tokens,timestamp_s\n1,2,3,4\n",
        ": has more than one column 'timestamp_s'; give each a name of its own",
    ),
    "an array of objects": ('[{"timestamp": 1}]', ": is a JSON array; give JSON-lines, one object a line"),
    "nothing at all": ("\n \n", ": is empty; give CSV with a header, or JSON-lines"),
    "a header alone": ("timestamp_s,input_tokens,output_tokens\n", ": has no requests; give one row or line for each"),
    "half an object": ('{"timestamp": 1, "input_length": 5, "output_length": 6}\n{"time', ":2: is no JSON"),
    "a field left out": (
        '{"timestamp": 1, "input_length": 5, "output_length": 6}\n{"timestamp": 2}\n',
        ":2: has no 'input_length'; every request needs one",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_trace_is_told_in_one_line(case: str, tmp_path: Path) -> None:
    text, message = REFUSED[case]
    path = tmp_path / "x.csv"
    path.write_text(text)
    with pytest.raises(TraceError) as refusal:
        read_trace(path)
    assert str(refusal.value).startswith(f"{path}{message}")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("content", [b"\x1f\x8b\x08broken", b"\xff\xfe\x00\x01"], ids=["no gzip after all", "no text"])
def test_bytes_that_are_no_text(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(content)
    with pytest.raises(TraceError):
        read_trace(tmp_path / "x.csv")


def test_a_file_and_a_column_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"nowhere\.csv: cannot be read"):
        read_trace(tmp_path / "nowhere.csv")
    (tmp_path / "x.csv").write_text(OWN)
    with pytest.raises(TraceError, match="has no column 'at' for the time; it has when, in, out"):
        read_trace(tmp_path / "x.csv", time="at", prompt="in", output="out")


def test_digits_below_a_microsecond_count() -> None:
    assert instant("2023-11-16 18:15:46.6805901") - instant("2023-11-16 18:15:46.6805900") == 100


@pytest.mark.parametrize(
    ("name", "requests", "rate", "tokens"),
    [
        ("azure-conv", 19_366, 5.53, 4_088_665),
        ("azure-code", 8_819, 2.57, 245_896),
        ("servegen-24h", 345_065, 3.99, 526_668_855),
        ("aibrix-up-down", 2_026, 4.39, None),
    ],
)
def test_the_recorded_traces_are_what_their_provenance_says(
    name: str, requests: int, rate: float, tokens: int | None
) -> None:
    trace = named(name)
    assert (len(trace), round(trace.rate, 2)) == (requests, rate)
    assert tokens in (None, int(trace.output.sum(dtype=np.int64)))


def test_a_name_that_is_not_known_is_told_those_that_are() -> None:
    with pytest.raises(TraceError, match="trace 'azure': is not known; the names are azure-conv, azure-code"):
        named("azure")
    assert "llmd-stages" in TRACES
