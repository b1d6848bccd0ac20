"""Models on servers and in the hub's cache: what is fetched, what is kept, what is said when it cannot be, and to whom."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import made
import numpy as np
import planted
import pytest
from loopback import Loopback
from numpy.typing import NDArray

from inspect_embed import open_checkpoint
from inspect_embed.cli import run
from inspect_embed.errors import InspectEmbedError, NotACheckpointError, PlaceError
from inspect_embed.storage import _http, locate, remote
from inspect_embed.storage._sparse import merge, subtract

SECRET = "hf_thisIsSecret"
N_ROWS, WIDTH = 3000, 64
WORDS = tuple(f"word{n}" for n in range(N_ROWS))
Q = "·word7"


def table() -> NDArray[np.float32]:
    return made.random_table(N_ROWS, WIDTH)


def big(name: str = "model.safetensors") -> dict[str, bytes]:
    """A model whose token table lies between two other tensors, each longer than what is fetched first."""
    return {
        name: made.safetensors(
            {
                "h.0.weight": made.random_table(512, 512, 1),
                "wte.weight": table(),
                "h.1.weight": made.random_table(512, 512, 2),
            }
        ),
        "config.json": b'{"model_type": "gpt2"}',
        "tokenizer.json": made.words(*WORDS),
        "README.md": b"read me" * 5000,
        "pytorch_model.bin": b"not looked at" * 5000,
    }


def table_range(files: dict[str, bytes]) -> tuple[int, int]:
    data = files["model.safetensors"]
    start = made.header_end(data) + 512 * 512 * 4
    return start, start + table().nbytes


def answers(path: str | Path, word: str = Q) -> tuple[list[tuple[int, float]], bytes]:
    """Neighbours of a word, and rows of the table."""
    from inspect_embed import neighbors

    opened = open_checkpoint(path)
    found = neighbors(opened, [word], k=3).results[0].neighbors
    return [(near.id, near.score) for near in found], opened.table().rows([1, 2, 11]).tobytes()


def covered(given: list[tuple[int, int]], *allowed: tuple[int, int]) -> bool:
    """Whether all that was given lies in what is allowed."""
    spans = merge(allowed)
    return not any(subtract(start, stop, spans) for start, stop in given)


# --- what is fetched


def test_neighbors_fetch_headers_config_vocabulary_and_the_one_table(
    server: Loopback, capsys: pytest.CaptureFixture[str]
) -> None:
    files = big()
    address = server.put("models/toy", files)
    assert run(["neighbors", address, Q, "-k", "2"]) == 0
    assert capsys.readouterr().out.startswith(f"{address}: nearest by cosine")
    assert set(server.paths()) == {
        "models/toy/", "models/toy/model.safetensors", "models/toy/config.json", "models/toy/tokenizer.json"
    }  # fmt: skip
    given = server.given("models/toy/model.safetensors")
    assert covered(given, (0, remote.FIRST_BYTES), table_range(files))
    assert sum(stop - start for start, stop in given) <= remote.FIRST_BYTES + table().nbytes + 1000
    assert not subtract(*table_range(files), merge(given))


def test_params_fetch_headers_alone(server: Loopback) -> None:
    address = server.put("toy", big())
    assert run(["params", address]) == 0
    assert server.given("toy/model.safetensors") == [(0, remote.FIRST_BYTES)]
    assert set(server.paths()) <= {"toy/", "toy/model.safetensors", "toy/config.json"}


def test_single_rows_are_fetched_by_themselves(server: Loopback) -> None:
    files = big()
    address = server.put("toy", files)
    assert run(["similarity", address, "·word0", "·word1500", "·word2999"]) == 0
    start, _ = table_range(files)
    # A single byte is asked for to see whether the table is there.
    given = [span for span in server.given("toy/model.safetensors") if span[1] - span[0] > 1]
    rows = [(start + row * 256, start + (row + 1) * 256) for row in (0, 1500, 2999)]
    assert covered(given, (0, remote.FIRST_BYTES), *rows)


def test_a_long_range_comes_in_parts_at_one_time(server: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "PART_BYTES", 1 << 16)
    address = server.put("toy", big())
    np.testing.assert_array_equal(open_checkpoint(address).table().rows(range(N_ROWS)), table())
    assert len(server.given("toy/model.safetensors")) > table().nbytes >> 16


def test_a_header_longer_than_the_first_bytes_is_read_on(server: Loopback) -> None:
    tensors = {f"h.{n}.weight": np.zeros((1, 1), np.float32) for n in range(2000)}
    data = made.safetensors({**tensors, "wte.weight": table()})
    assert made.header_end(data) > 2 * remote.FIRST_BYTES
    address = server.put("toy", {"model.safetensors": data})
    assert len(open_checkpoint(address).tensors) == 2001
    assert max(stop for _, stop in server.given("toy/model.safetensors")) < made.header_end(data) + (1 << 16)


def test_shards_are_opened_and_only_the_one_with_the_table_is_read(server: Loopback) -> None:
    parts = {
        "model-00001-of-00002.safetensors": {"h.0.weight": made.random_table(512, 512)},
        "model-00002-of-00002.safetensors": {"wte.weight": table()},
    }
    address = server.put("toy", {**made.shards(parts), "tokenizer.json": made.words(*WORDS)})
    assert run(["neighbors", address, Q]) == 0
    assert server.given("toy/model-00001-of-00002.safetensors") == [(0, remote.FIRST_BYTES)]


def test_what_was_fetched_is_on_disk_for_the_next_run(
    server: Loopback, capsys: pytest.CaptureFixture[str]
) -> None:
    address = server.put("toy", big())
    assert run(["neighbors", address, Q, "--verbose"]) == 0
    first, n_bytes = capsys.readouterr(), server.n_bytes
    server.requests.clear()
    assert run(["neighbors", address, Q, "--verbose"]) == 0
    again = capsys.readouterr()
    assert again.out == first.out
    assert server.given("toy/model.safetensors") == [(0, remote.FIRST_BYTES)]
    assert server.n_bytes < n_bytes - table().nbytes + (1 << 16)
    assert "on disk already" in again.err
    assert "on disk already" not in first.err


def test_a_file_that_has_changed_is_fetched_again(server: Loopback) -> None:
    address = server.put("toy", big())
    before, _ = answers(address)
    files = big()
    files["model.safetensors"] = made.safetensors(
        {"h.0.weight": made.random_table(512, 512, 1), "wte.weight": -table()[::-1], "h.1.weight": made.random_table(512, 512)}
    )  # fmt: skip
    server.put("toy", files)
    server.etag = '"2"'
    after, rows = answers(address)
    assert after != before
    assert rows == np.ascontiguousarray(-table()[::-1][[1, 2, 11]]).tobytes()


@pytest.mark.parametrize("damage", ["[[0, 99999999999]]", "[[-5, 3]]", "nonsense", '{"a": 1}', "[1, 2]"])
def test_a_damaged_note_of_what_is_on_disk_is_no_note(server: Loopback, tmp_path: Path, damage: str) -> None:
    address = server.put("toy", big())
    expected = answers(address)
    for note in (tmp_path / "fetched").glob("*.ranges"):
        note.write_text(damage, encoding="ascii")
    for copy in (tmp_path / "fetched").glob("*.bytes"):
        copy.write_bytes(bytes(copy.stat().st_size))
    assert answers(address) == expected


def test_without_a_folder_that_can_be_written_nothing_is_kept(
    server: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"")
    address = server.put("toy", big())
    expected = answers(address)
    for folder in ("", str(tmp_path / "file" / "below")):
        monkeypatch.setenv("INSPECT_EMBED_CACHE", folder)
        assert answers(address) == expected


def test_what_is_kept_is_for_its_owner_alone(server: Loopback, tmp_path: Path) -> None:
    answers(server.put("toy", big()))
    kept = [tmp_path / "fetched", *(tmp_path / "fetched").glob("*")]
    assert len(kept) > 1
    assert all(path.stat().st_mode & 0o077 == 0 for path in kept)


# --- how servers differ


def test_a_file_is_opened_with_what_lies_beside_it(server: Loopback) -> None:
    address = server.put("toy", big())
    assert answers(f"{address}/model.safetensors") == answers(address)
    assert open_checkpoint(f"{address}/model.safetensors").config["model_type"] == "gpt2"


@pytest.mark.parametrize("head", [True, False])
def test_a_server_that_lists_nothing_is_asked_for_the_names_that_models_have(
    server: Loopback, head: bool
) -> None:
    expected = answers(server.put("toy", big()))
    server.listing, server.head = False, head
    address = server.put("bare", big())
    assert answers(address) == expected
    assert answers(f"{address}/model.safetensors") == expected


def test_shards_are_known_by_their_index_where_nothing_is_listed(server: Loopback) -> None:
    server.listing = False
    parts = {
        "model-00001-of-00002.safetensors": {"h.0.weight": made.random_table(8, 8)},
        "model-00002-of-00002.safetensors": {"wte.weight": table()},
    }
    address = server.put("toy", {**made.shards(parts), "tokenizer.json": made.words(*WORDS)})
    assert open_checkpoint(address).table().n_rows == N_ROWS


@pytest.mark.parametrize("lengths", [True, False])
def test_a_short_file_is_fetched_whole_where_a_server_knows_no_ranges(
    server: Loopback, lengths: bool
) -> None:
    expected = answers(server.put("toy", big()))
    server.ranges, server.lengths, server.etag = False, lengths, ""
    assert answers(server.put("whole", big())) == expected


@pytest.mark.parametrize("lengths", [True, False])
def test_a_long_file_is_not(
    server: Loopback, lengths: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_http, "MOST_WITHOUT_RANGES", 100_000)
    server.ranges, server.lengths = False, lengths
    address = server.put("toy", big())
    assert run(["neighbors", address, Q]) == 1
    err = capsys.readouterr().err
    assert "knows no ranges" in err
    assert "Download the file" in err


def test_a_connection_that_is_cut_is_taken_up_where_it_broke_off(server: Loopback) -> None:
    expected = answers(server.put("toy", big()))
    server.etag = '"other"'
    server.put("cut", big())
    opened = open_checkpoint(f"{server.url}/cut")
    server.cuts = [100_000, 1, 300_000, 5]
    np.testing.assert_array_equal(opened.table().rows(range(N_ROWS)), table())
    given = server.given("cut/model.safetensors")
    assert sum(stop - start for start, stop in given) <= remote.FIRST_BYTES + table().nbytes + 1
    assert answers(f"{server.url}/cut") == expected


def test_a_first_answer_that_is_cut_is_asked_for_again(server: Loopback) -> None:
    address = server.put("toy", big())
    server.cuts = [10, 50, 10]
    assert open_checkpoint(address).table().n_rows == N_ROWS


def test_a_connection_that_brings_nothing_is_given_up(server: Loopback) -> None:
    opened = open_checkpoint(server.put("toy", big()))
    server.cuts = [0] * 99
    with pytest.raises(PlaceError, match=f"could not be read in {_http.ATTEMPTS} attempts") as caught:
        opened.table().rows([3])
    assert "Ask again later" in caught.value.hint


def test_a_busy_server_is_asked_again(server: Loopback) -> None:
    address = server.put("toy", big())
    server.busy = 2
    assert open_checkpoint(address).table().n_rows == N_ROWS
    server.busy = 99
    with pytest.raises(PlaceError, match="503"):
        open_checkpoint(address)


def test_a_server_that_never_answers_is_given_up(server: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_http, "TIMEOUT_SECONDS", 0.05)
    address = server.put("toy", big())
    server.hang = threading.Event()
    with pytest.raises(PlaceError, match=r"attempts: (nothing came|timed out)"):
        open_checkpoint(address)


def test_a_server_that_gives_other_bytes_is_not_believed(server: Loopback) -> None:
    server.wrong_range = True
    with pytest.raises(PlaceError, match="other bytes than were asked for"):
        open_checkpoint(server.put("toy", big()))


def test_links_that_lead_elsewhere_are_no_names(server: Loopback) -> None:
    names = locate(server.put("toy", big())).folder.names()
    assert names == sorted(big())


def test_names_with_odd_letters_are_found(server: Loopback) -> None:
    files = {"a b #?%.safetensors": made.safetensors({"wte.weight": table()})}
    address = server.put("some model", files)
    assert open_checkpoint(address).table().n_rows == N_ROWS


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"<!DOCTYPE html><html><body>Not Found</body></html>", "web page"),
        (b"version https://git-lfs.github.com/spec/v1\nsize 5\n", "git-lfs"),
        (b"", "empty"),
        (big()["model.safetensors"][:40_000], "cut short"),
    ],
)
def test_a_wrong_file_is_one_clear_line(
    server: Loopback, capsys: pytest.CaptureFixture[str], data: bytes, says: str
) -> None:
    address = server.put("toy", {"model.safetensors": data, "tokenizer.json": made.words(*WORDS)})
    assert run(["neighbors", address, Q]) == 1
    err = capsys.readouterr().err
    assert says in err.splitlines()[0]
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("{}/nowhere", "no model at"),
        ("{}/toy/absent.safetensors", "no file absent.safetensors"),
        ("http://nowhere.invalid/toy", "nowhere.invalid cannot be reached: Name or service not known"),
        ("http://127.0.0.1:1/toy", "127.0.0.1 cannot be reached"),
        ("hf://org/name", "huggingface.co cannot be reached"),
        ("hf://name", "names no model"),
        ("hf://", "names no model"),
        ("http://", "no address"),
        ("http:///toy", "no address"),
        ("http://[::1/toy", "no address"),
        ("http://127.0.0.1:port/toy", "no address"),
        ("http://127.0.0.1:99999999/toy", "no address"),
        ("nonsense://x", "nonsense://"),
        ("https://127.0.0.1:1/x y.safetensors", "127.0.0.1"),
    ],
)
def test_an_address_that_leads_nowhere_is_one_clear_line(
    server: Loopback, capsys: pytest.CaptureFixture[str], address: str, says: str
) -> None:
    server.put("toy", big())
    assert run(["info", address.format(server.url)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert [line.partition(": ")[0] for line in lines] == ["error", "hint"]
    assert says in lines[0]


# --- secrets


def hub(
    server: Loopback, files: dict[str, bytes], model: str = "org/name", commit: str = "0123abcd" * 5
) -> str:
    """Put a model on a server that answers as the hub does; returns the commit."""
    siblings = [{"rfilename": name} for name in files]
    for revision in ("main", commit, "v1.0", "refs/pr/1"):
        server.files[f"api/models/{model}/revision/{revision}"] = json.dumps(
            {"sha": commit, "siblings": siblings}
        ).encode()
    server.put(f"{model}/resolve/{commit}", files)
    return commit


@pytest.fixture
def endpoint(server: Loopback, monkeypatch: pytest.MonkeyPatch) -> Loopback:
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    return server


@pytest.mark.parametrize(
    "address",
    [
        "hf://org/name", "hf://org/name@v1.0", "hf://org/name@refs%2Fpr%2F1", "hf://org/name/model.safetensors", "{}/org/name",
        "{}/org/name/tree/main", "{}/org/name/blob/main/model.safetensors", "{}/org/name/resolve/v1.0/model.safetensors",
    ],
)  # fmt: skip
def test_a_model_of_the_hub_is_read_by_its_name_or_its_page(
    endpoint: Loopback, address: str, tmp_path: Path
) -> None:
    commit = hub(endpoint, big())
    opened = open_checkpoint(address.format(endpoint.url))
    assert opened.location.startswith("hf://org/name")
    assert any(commit in note for note in opened.notes)
    assert answers(address.format(endpoint.url)) == answers(made.write(tmp_path / "m", big()))
    assert covered(
        endpoint.given(f"org/name/resolve/{commit}/model.safetensors"),
        (0, remote.FIRST_BYTES), table_range(big()),
    )  # fmt: skip


def test_a_folder_inside_a_model_of_the_hub_is_read(endpoint: Loopback) -> None:
    files = {f"text_encoder/{name}": data for name, data in big().items()}
    hub(endpoint, {**files, "vae/model.safetensors": b"x"})
    assert answers("hf://org/name/text_encoder")
    with pytest.raises(NotACheckpointError, match="no folder or file unet"):
        open_checkpoint("hf://org/name/unet")
    with pytest.raises(NotACheckpointError, match="no model hf://org/other"):
        open_checkpoint("hf://org/other")


@pytest.mark.parametrize(
    "content", [b"<html>", b"[]", b'{"sha": 5, "siblings": []}', b'{"sha": "../x", "siblings": []}']
)
def test_an_answer_that_the_hub_would_not_give_is_refused(endpoint: Loopback, content: bytes) -> None:
    endpoint.files["api/models/org/name/revision/main"] = content
    with pytest.raises(PlaceError, match="none that is known"):
        open_checkpoint("hf://org/name")


def everything_said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    status = run([*arguments])
    out, err = capsys.readouterr()
    return status, out + err


@pytest.mark.parametrize("refusal", [401, 403])
def test_a_gated_model_names_the_variable_of_the_token(
    endpoint: Loopback, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, refusal: int
) -> None:
    hub(endpoint, big())
    endpoint.token, endpoint.refusal = SECRET, refusal
    status, said = everything_said(capsys, "info", "hf://org/name")
    assert (status, "HF_TOKEN" in said, f"answers {refusal}" in said) == (1, True, True)
    monkeypatch.setenv("HF_TOKEN", "hf_aWrongSecret")
    status, said = everything_said(capsys, "info", "hf://org/name")
    assert (status, "HF_TOKEN" in said, "hf_aWrong" in said) == (1, True, False)
    assert "Ask for access" in said
    monkeypatch.setenv("HF_TOKEN", SECRET)
    for arguments in (("info",), ("neighbors", Q), ("params", "--format", "json")):
        command, *words = arguments
        status, said = everything_said(capsys, command, "hf://org/name", *words, "--verbose")
        assert (status, SECRET in said) == (0, False)


def test_a_token_is_found_where_the_hubs_library_leaves_it(endpoint: Loopback, tmp_path: Path) -> None:
    hub(endpoint, big())
    endpoint.token = SECRET
    (tmp_path / "hub_home").mkdir()
    (tmp_path / "hub_home" / "token").write_text(f"{SECRET}\n", encoding="utf-8")
    assert answers("hf://org/name")


def test_a_token_is_sent_to_its_own_host_and_to_no_other(
    endpoint: Loopback, other_server: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRET)
    endpoint.token = SECRET
    files = big()
    commit = hub(endpoint, files)
    blob = other_server.put("blobs", {"1": files["model.safetensors"]})
    stored = f"org/name/resolve/{commit}/model.safetensors"
    del endpoint.files[stored]
    endpoint.redirects = {
        stored: f"/{stored}.moved",  # here, with the token
        f"{stored}.moved": f"{blob}/1?X-Signature=signed",  # elsewhere, without it
    }
    assert answers("hf://org/name")
    assert {r.authorization for r in endpoint.requests} == {f"Bearer {SECRET}"}
    assert len(other_server.requests) > 1
    assert {r.authorization for r in other_server.requests} == {None}
    assert {r.query for r in other_server.requests} == {"X-Signature=signed"}
    # Another server is not sent the hub's token in the first place.
    answers(other_server.put("toy", files))
    assert {r.authorization for r in other_server.requests} == {None}


def test_the_place_a_file_was_found_at_is_asked_first_while_it_is_good(
    server: Loopback, other_server: Loopback
) -> None:
    files = big()
    other_server.put("a", files)
    server.put("toy", {"tokenizer.json": files["tokenizer.json"]})
    path = "toy/model.safetensors"
    server.redirects = {path: f"{other_server.url}/a/model.safetensors?good=1"}
    opened = open_checkpoint(f"{server.url}/{path}")
    opened.table().rows([3])
    assert [r.path for r in server.requests].count(path) == 1
    # The signature has run out: the server is asked for a new one.
    other_server.put("b", files)
    del other_server.files["a/model.safetensors"]
    server.redirects = {path: f"{other_server.url}/b/model.safetensors?good=2"}
    np.testing.assert_array_equal(opened.table().rows(range(N_ROWS)), table())
    assert {r.path for r in other_server.requests if r.status == 206} == {
        "a/model.safetensors",
        "b/model.safetensors",
    }


def test_whoever_draws_a_bar_hears_the_end_of_a_fetch_that_failed(
    server: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "PART_BYTES", 1 << 18)
    monkeypatch.setattr(remote, "AT_ONCE", 1)
    heard: list[tuple[int, int]] = []
    opened = open_checkpoint(
        server.put("toy", big()), progress=lambda done, total: heard.append((done, total))
    )
    found = opened.table()
    heard.clear()
    server.cuts = [1 << 20, 1 << 20] + [0] * 99  # two parts come, and no third
    with pytest.raises(PlaceError):
        found.norms  # noqa: B018
    assert heard[0][0] < heard[0][1]
    assert heard[-1][0] == heard[-1][1]


def test_a_redirect_back_to_a_host_of_the_same_name_and_another_port_is_elsewhere(
    server: Loopback, other_server: Loopback
) -> None:
    other_server.put("toy", big())
    server.redirects = {f"toy/{name}": f"{other_server.url}/toy/{name}" for name in ("", *big())}
    address = server.url.replace("http://", f"http://user:{SECRET}@") + "/toy/model.safetensors"
    assert answers(address)
    assert all(r.authorization and r.authorization.startswith("Basic ") for r in server.requests)
    assert {r.authorization for r in other_server.requests} == {None}


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/x", "/toy/model.safetensors"])
def test_a_redirect_into_the_disk_or_in_a_circle_is_not_followed(server: Loopback, target: str) -> None:
    server.redirects = {"toy/model.safetensors": target}
    server.put("toy", {"config.json": b"{}"})
    with pytest.raises(PlaceError, match=r"send on to|on and on"):
        open_checkpoint(f"{server.url}/toy/model.safetensors")


@pytest.mark.parametrize("command", ["info", "params", "neighbors"])
def test_no_password_and_no_signature_is_ever_shown(
    server: Loopback, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    server.put("toy", big())
    words = (Q,) if command == "neighbors" else ()
    host = server.url.removeprefix("http://")
    for path in (
        "toy/model.safetensors",
        "toy/absent.safetensors",
        "toy",
        "nowhere",
        "toy/README.safetensors",
    ):
        address = f"http://user:{SECRET}@{host}/{path}?X-Signature={SECRET}"
        for format_ in ("text", "json"):
            _, said = everything_said(capsys, command, address, *words, "--format", format_, "--verbose")
            assert SECRET not in said
            assert "127.0.0.1" in said
    _, said = everything_said(capsys, "info", f"http://user:{SECRET}@nowhere.invalid/x?{SECRET}")
    assert SECRET not in said
    _, said = everything_said(capsys, "info", f"http://user:{SECRET}@[bad/x?{SECRET}")
    assert SECRET not in said


def test_a_query_is_sent_for_the_file_it_was_made_for_alone(server: Loopback) -> None:
    server.put("toy", big())
    answers(f"{server.url}/toy/model.safetensors?sig=1")
    assert {r.path for r in server.requests if r.query} == {"toy/model.safetensors"}
    assert all(r.query == "sig=1" for r in server.requests if r.path == "toy/model.safetensors")


# --- the hub's cache


def cache(alone: Path, commit: str, files: dict[str, bytes], ref: str = "") -> Path:
    folder = alone / "models--org--name"
    made.write(folder / "snapshots" / commit, files)
    if ref:
        (folder / "refs" / ref).parent.mkdir(parents=True, exist_ok=True)
        (folder / "refs" / ref).write_text(f"{commit}\n", encoding="utf-8")
    return folder


def test_a_model_id_is_looked_up_in_the_hubs_cache(alone: Path) -> None:
    cache(alone, "a" * 40, big(), "main")
    cache(alone, "b" * 40, {"model.safetensors": made.safetensors({"wte.weight": table()[:9]})}, "refs/pr/1")
    assert open_checkpoint("org/name").table().n_rows == N_ROWS
    assert open_checkpoint("org/name").location == "org/name"
    for revision in ("b" * 40, "b" * 7, "refs/pr/1"):
        assert open_checkpoint(f"org/name@{revision}").table().n_rows == 9
    assert any("a" * 40 in note for note in open_checkpoint("org/name").notes)


def test_a_revision_that_is_not_in_the_cache_is_told_with_those_that_are(alone: Path) -> None:
    cache(alone, "a" * 40, big(), "main")
    (alone / "secret").write_text("a" * 40, encoding="utf-8")
    for revision in ("v2", "abc", "c" * 40, "../../secret", "..", "refs/../../../secret"):
        with pytest.raises(NotACheckpointError) as caught:
            open_checkpoint(f"org/name@{revision}")
        assert "a" * 40 in caught.value.hint or "There is no file" in str(caught.value)


def test_a_model_that_is_not_in_the_cache_is_told_where_to_be_read(alone: Path) -> None:
    with pytest.raises(NotACheckpointError) as caught:
        open_checkpoint("org/other")
    assert "hf://org/other" in caught.value.hint
    assert str(alone) in caught.value.hint
    (alone / "models--org--other" / "snapshots").mkdir(parents=True)
    with pytest.raises(NotACheckpointError, match="without a snapshot"):
        open_checkpoint("org/other")


def test_a_folder_of_that_name_goes_before_the_cache(
    alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache(alone, "a" * 40, big(), "main")
    monkeypatch.chdir(tmp_path)
    made.write_checkpoint(tmp_path / "org" / "name", {"wte.weight": table()[:5]})
    assert open_checkpoint("org/name").table().n_rows == 5


# --- fsspec


def test_what_fsspec_speaks_is_read_by_ranges(alone: Path) -> None:
    fsspec = pytest.importorskip("fsspec", reason="the extra `remote`")
    files = fsspec.filesystem("memory")
    for name, data in big().items():
        files.pipe(f"/bucket/toy/{name}", data)
    asked: list[tuple[Any, Any]] = []
    plain = type(files).cat_file

    def watch(self: Any, path: str, start: Any = None, end: Any = None, **more: Any) -> Any:
        if path.endswith("model.safetensors"):
            asked.append((start, end))
        return plain(self, path, start=start, end=end, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(files), "cat_file", watch)
        found = answers("memory://bucket/toy")
        assert answers("memory://bucket/toy/model.safetensors") == found
    assert asked
    assert covered(asked, (0, remote.FIRST_BYTES), table_range(big()))
    with pytest.raises(NotACheckpointError, match="memory://bucket/none"):
        open_checkpoint("memory://bucket/none")


def test_without_fsspec_the_error_is_the_line_to_type(
    alone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from inspect_embed.storage import _fsspec

    monkeypatch.setattr(_fsspec, "find_spec", lambda name: None)
    assert run(["info", "s3://bucket/toy"]) == 1
    assert 'hint: pip install "inspect-embed[remote]"\n' in capsys.readouterr().err


# --- what is shown


def test_verbose_tells_the_bytes_that_the_server_has_sent(
    server: Loopback, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    address = server.put("toy", big())
    assert run(["neighbors", address, Q, "--verbose"]) == 0
    out, err = capsys.readouterr()
    assert err == f"{address}: {server.n_bytes:,} bytes fetched in {len(server.requests)} requests\n"
    assert "fetched" not in out
    assert run(["info", str(made.write(tmp_path / "m", big())), "--verbose"]) == 0
    assert "nothing was fetched" in capsys.readouterr().err


def test_a_bar_is_drawn_on_a_terminal_and_wiped_away(
    server: Loopback, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "PART_BYTES", 1 << 18)
    address = server.put("toy", big())
    assert run(["neighbors", address, Q]) == 0
    assert capsys.readouterr().err == ""
    server.etag = '"2"'
    monkeypatch.setattr(type(sys.stderr), "isatty", lambda self: True, raising=False)
    assert run(["neighbors", address, Q]) == 0
    err = capsys.readouterr().err
    assert "fetching [" in err
    assert err.endswith("\r\x1b[K")


def test_a_local_checkpoint_loads_nothing_of_far_places(tmp_path: Path) -> None:
    folder = planted.write_checkpoint(tmp_path / "planted")
    far = (
        "inspect_embed.storage.hub", "inspect_embed.storage.remote", "inspect_embed.storage._http", "urllib.request",
        "http.client", "ssl", "fsspec", "inspect_embed.formats.npy", "inspect_embed.formats.word_vectors",
        "inspect_embed.vocabularies.word_list", "inspect_embed.analyses.export", "zipfile", "pyarrow",
    )  # fmt: skip
    script = (
        f"import sys\nfrom inspect_embed.cli import run\nrun(['neighbors', {str(folder)!r}, '·girl'])\n"
        f"print([name for name in {far!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONUTF8": "1"},
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_ranges_are_joined_and_taken_apart() -> None:
    assert merge([(5, 9), (0, 2), (2, 3), (8, 12), (4, 4)]) == [(0, 3), (5, 12)]
    assert subtract(1, 20, [(0, 3), (5, 12)]) == [(3, 5), (12, 20)]
    assert subtract(5, 12, [(0, 3), (5, 12)]) == []


def test_an_error_of_a_place_is_an_error_of_a_checkpoint() -> None:
    assert issubclass(PlaceError, InspectEmbedError)
