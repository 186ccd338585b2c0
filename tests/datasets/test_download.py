"""Against a server on this machine that cuts, delays, corrupts and redirects."""

from __future__ import annotations

import hashlib
import io
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from raindrop.datasets.download import Fetcher, announcement, download, publication_of
from raindrop.datasets.publishers import PUBLICATIONS, Listing, Publication, Remote
from raindrop.errors import DataError

CONTENT = np.random.default_rng(0).bytes(1_500_000)
SHA = hashlib.sha256(CONTENT).hexdigest()


@dataclass
class Shop:
    """What the server serves, and how it misbehaves: one step of a path's plan per request, then plainly."""

    address: str
    files: dict[str, bytes] = field(default_factory=dict)
    plans: dict[str, list[Callable[[BaseHTTPRequestHandler, bytes], None]]] = field(default_factory=dict)
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    ranges: bool = True
    tag: str | None = '"v1"'

    def remote(self, path: str, sha256: str | None = None) -> Remote:
        return Remote(f"{self.address}/{path}", path, sha256)


def plainly(handler: BaseHTTPRequestHandler, content: bytes, stop_at: int | None = None) -> None:
    shop: Shop = handler.server.shop  # type: ignore[attr-defined]
    wanted = handler.headers.get("Range")
    same = handler.headers.get("If-Range") in (None, shop.tag)
    start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and shop.ranges and same else 0
    if start and start >= len(content):
        handler.send_response(416)
        handler.send_header("Content-Range", f"bytes */{len(content)}")
        handler.send_header("Content-Length", "0")
        handler.end_headers()
        return
    handler.send_response(206 if start else 200)
    handler.send_header("Content-Length", str(len(content) - start))
    if start:
        handler.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
    if shop.tag:
        handler.send_header("ETag", shop.tag)
    handler.end_headers()
    handler.wfile.write(content[start:stop_at])
    if stop_at is not None:
        handler.close_connection = True


def cut_at(position: int) -> Callable[[BaseHTTPRequestHandler, bytes], None]:
    return lambda handler, content: plainly(handler, content, stop_at=position)


def corrupted(handler: BaseHTTPRequestHandler, content: bytes) -> None:
    plainly(handler, content[:1000] + b"X" + content[1001:])


def delayed(seconds: float) -> Callable[[BaseHTTPRequestHandler, bytes], None]:
    def act(handler: BaseHTTPRequestHandler, content: bytes) -> None:
        time.sleep(seconds)
        handler.close_connection = True

    return act


def answering(code: int, **headers: str) -> Callable[[BaseHTTPRequestHandler, bytes], None]:
    def act(handler: BaseHTTPRequestHandler, content: bytes) -> None:
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return act


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        shop: Shop = self.server.shop  # type: ignore[attr-defined]
        path = self.path.lstrip("/")
        shop.asked.append((path, self.headers.get("Range")))
        plan = shop.plans.get(path, [])
        if plan:
            plan.pop(0)(self, shop.files.get(path, b""))
        elif path in shop.files:
            plainly(self, shop.files[path])
        else:
            answering(404)(self, b"")

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def shop() -> Iterator[Shop]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.shop = Shop(f"http://127.0.0.1:{server.server_port}")  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server.shop  # type: ignore[attr-defined]
    server.shutdown()
    server.server_close()
    thread.join(timeout=5)


@pytest.fixture
def fetcher(tmp_path: Path) -> Fetcher:
    return Fetcher(tmp_path / "out", attempts=3, wait=0.001, timeout=0.5, connections=3)


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob(".*"))


def test_a_file_arrives_whole_with_progress_and_is_recorded(shop: Shop, tmp_path: Path) -> None:
    shop.files["a.bin"] = CONTENT
    seen: list[tuple[int, int | None]] = []
    fetcher = Fetcher(tmp_path, progress=lambda path, done, total: seen.append((done, total)))
    assert fetcher.fetch(shop.remote("a.bin", SHA)).read_bytes() == CONTENT
    assert seen[0] == (0, len(CONTENT))
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert len(seen) > 3
    record = json.loads((tmp_path / "checksums.json").read_text())["a.bin"]
    assert record == {"sha256": SHA, "size": len(CONTENT), "address": f"{shop.address}/a.bin"}
    assert leftovers(tmp_path) == []


def test_a_cut_connection_is_continued_where_it_was_cut(shop: Shop, fetcher: Fetcher) -> None:
    shop.files["a.bin"] = CONTENT
    shop.plans["a.bin"] = [cut_at(400_000), cut_at(400_001), cut_at(1_000_000)]
    assert fetcher.fetch(shop.remote("a.bin", SHA)).read_bytes() == CONTENT
    assert [asked for _, asked in shop.asked] == [None, "bytes=400000-", "bytes=400001-", "bytes=1000000-"]


def test_a_later_run_continues_what_an_earlier_one_left(shop: Shop, fetcher: Fetcher) -> None:
    shop.files["a.bin"] = CONTENT
    shop.plans["a.bin"] = [cut_at(700_000), *[answering(503)] * 3]
    with pytest.raises(DataError, match=r"503 .* 3 times in a row.\n700,000 bytes are kept in .*run the same command"):
        fetcher.fetch(shop.remote("a.bin", SHA))
    assert not (fetcher.folder / "a.bin").exists()
    assert Fetcher(fetcher.folder).fetch(shop.remote("a.bin", SHA)).read_bytes() == CONTENT
    assert shop.asked[-1] == ("a.bin", "bytes=700000-")


def test_a_server_that_cannot_continue_starts_again(shop: Shop, fetcher: Fetcher) -> None:
    shop.files["a.bin"], shop.ranges = CONTENT, False
    shop.plans["a.bin"] = [cut_at(700_000)]
    assert fetcher.fetch(shop.remote("a.bin", SHA)).read_bytes() == CONTENT


def test_two_versions_are_never_mixed(shop: Shop, fetcher: Fetcher) -> None:
    shop.files["a.bin"] = CONTENT
    shop.plans["a.bin"] = [cut_at(700_000), *[answering(503)] * 3]
    with pytest.raises(DataError):
        fetcher.fetch(shop.remote("a.bin"))
    shop.files["a.bin"], shop.tag = CONTENT[::-1], '"v2"'
    assert fetcher.fetch(shop.remote("a.bin")).read_bytes() == CONTENT[::-1]


def test_without_checksum_or_version_nothing_is_continued(shop: Shop, fetcher: Fetcher) -> None:
    shop.files["a.bin"], shop.tag = CONTENT, None
    shop.plans["a.bin"] = [cut_at(700_000)]
    assert fetcher.fetch(shop.remote("a.bin")).read_bytes() == CONTENT
    assert [asked for _, asked in shop.asked] == [None, None]


def test_a_partial_file_longer_than_the_published_one_is_thrown_away(shop: Shop, fetcher: Fetcher) -> None:
    shop.files["a.bin"] = CONTENT
    fetcher.folder.mkdir()
    (fetcher.folder / ".a.bin.part").write_bytes(CONTENT + b"more")
    assert fetcher.fetch(shop.remote("a.bin", SHA)).read_bytes() == CONTENT


def test_a_corrupted_file_is_fetched_again_once(shop: Shop, fetcher: Fetcher) -> None:
    shop.files["a.bin"] = CONTENT
    shop.plans["a.bin"] = [corrupted]
    assert fetcher.fetch(shop.remote("a.bin", SHA)).read_bytes() == CONTENT
    assert len(shop.asked) == 2


def test_what_stays_corrupted_is_an_error_and_leaves_nothing(shop: Shop, fetcher: Fetcher) -> None:
    shop.files["a.bin"] = CONTENT
    shop.plans["a.bin"] = [corrupted] * 2
    with pytest.raises(
        DataError, match=r"a.bin: what arrived, twice, is not what is expected \(SHA-256 .*\n.*nothing was"
    ):
        fetcher.fetch(shop.remote("a.bin", SHA))
    assert not (fetcher.folder / "a.bin").exists()
    assert not (fetcher.folder / ".a.bin.part").exists()


def test_a_silent_server_is_asked_again(shop: Shop, fetcher: Fetcher) -> None:
    shop.files["a.bin"] = CONTENT
    shop.plans["a.bin"] = [delayed(0.8)]
    assert fetcher.fetch(shop.remote("a.bin", SHA)).read_bytes() == CONTENT
    shop.plans["b.bin"] = [delayed(0.8)] * 5
    started = time.monotonic()
    with pytest.raises(DataError, match="timed out, 3 times in a row"):
        fetcher.fetch(shop.remote("b.bin", SHA))
    assert time.monotonic() - started < 5


def test_redirects_are_followed_and_a_circle_of_them_is_an_error(shop: Shop, fetcher: Fetcher) -> None:
    shop.files["new/a.bin"] = CONTENT
    shop.plans["a.bin"] = [answering(302, Location="/new/a.bin")] * 2
    shop.plans["new/a.bin"] = [cut_at(500_000)]
    assert fetcher.fetch(shop.remote("a.bin", SHA)).read_bytes() == CONTENT
    assert shop.asked[-1] == ("new/a.bin", "bytes=500000-")
    shop.plans["round"] = [answering(302, Location="/round")] * 50
    with pytest.raises(DataError, match="the server answered 302"):
        fetcher.fetch(shop.remote("round", SHA))


def test_a_redirect_to_a_file_of_this_machine_is_refused(shop: Shop, fetcher: Fetcher, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    shop.plans["a.bin"] = [answering(302, Location=f"file://{tmp_path}/secret")] * 9
    with pytest.raises(DataError):
        fetcher.fetch(shop.remote("a.bin"))
    assert not (fetcher.folder / "a.bin").exists()


def test_busy_answers_are_waited_out_and_refusals_are_not(shop: Shop, fetcher: Fetcher) -> None:
    shop.files["a.bin"] = CONTENT
    shop.plans["a.bin"] = [answering(503), answering(429)]
    assert fetcher.fetch(shop.remote("a.bin", SHA)).read_bytes() == CONTENT
    shop.plans["b.bin"] = [answering(403)] * 9
    with pytest.raises(DataError, match=r"b.bin: the server answered 403 Forbidden\."):
        fetcher.fetch(shop.remote("b.bin", SHA))
    assert len([path for path, _ in shop.asked if path == "b.bin"]) == 1


def test_no_server_at_all_is_one_clear_message(fetcher: Fetcher) -> None:
    with pytest.raises(DataError, match=r"127.0.0.1:9/x: .*refused.*, 3 times in a row"):
        fetcher.fetch(Remote("http://127.0.0.1:9/x", "x"))


def test_a_right_file_is_not_fetched_again_and_a_changed_one_is(shop: Shop, fetcher: Fetcher) -> None:
    shop.files["a.bin"] = CONTENT
    for _ in range(2):
        fetcher.fetch(shop.remote("a.bin", SHA))
    assert len(shop.asked) == 1
    (fetcher.folder / "a.bin").write_bytes(CONTENT[:-1])
    assert fetcher.fetch(shop.remote("a.bin", SHA)).read_bytes() == CONTENT


def test_without_a_published_checksum_the_first_download_is_the_measure(shop: Shop, fetcher: Fetcher) -> None:
    shop.files["a.bin"] = CONTENT
    fetcher.fetch(shop.remote("a.bin"))
    Fetcher(fetcher.folder).fetch(shop.remote("a.bin"))
    assert len(shop.asked) == 1
    (fetcher.folder / "a.bin").unlink()
    shop.files["a.bin"] = b"something else"
    with pytest.raises(DataError, match="what arrived, twice, is not what is expected"):
        Fetcher(fetcher.folder).fetch(shop.remote("a.bin"))


def test_a_damaged_record_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "checksums.json").write_text("{")
    with pytest.raises(DataError, match=r"checksums.json: damaged. Delete it"):
        Fetcher(tmp_path)


def test_a_folder_that_cannot_be_written_is_not_blamed_on_the_network(shop: Shop, tmp_path: Path) -> None:
    shop.files["a.bin"] = CONTENT
    (tmp_path / ".a.bin.part.tag").mkdir()
    with pytest.raises(DataError, match=r"\.a\.bin\.part: cannot be written \(Is a directory\)"):
        Fetcher(tmp_path, attempts=2, wait=0.001).fetch(shop.remote("a.bin"))
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"file: cannot be made"):
        Fetcher(tmp_path / "file").fetch(shop.remote("a.bin"))


@pytest.fixture
def publication(shop: Shop) -> Publication:
    """Archives, splits, and a list of small files for when the archives are gone."""
    records = {f"training/set{s}/p{n:06d}.psv": f"record {s} {n}".encode() for s in "AB" for n in range(20)}
    shop.files |= {f"files/{path}": content for path, content in records.items()}
    sums = [f"{hashlib.sha256(content).hexdigest()} {path}" for path, content in records.items()]
    sums += [f"{SHA} LICENSE.txt", f"{SHA} training/../../outside.psv"]
    shop.files["files/SHA256SUMS.txt"] = "\n".join(sums).encode()
    shop.files["set.zip"] = CONTENT
    shop.files["split1.npy"] = _split_file()
    return Publication(
        title="A data set",
        files=(Remote(f"{shop.address}/set.zip", "set.zip", SHA),),
        splits=(Remote(f"{shop.address}/split1.npy", "splits/a_split1.npy"),),
        listing=Listing(f"{shop.address}/files/SHA256SUMS.txt", f"{shop.address}/files/", "training/"),
        licence="CC BY 4.0",
        page="https://example.org",
        megabytes=2,
        citation="Somebody",
    )


def _split_file() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.arange(6).reshape(3, 2))
    return buffer.getvalue()


def test_a_publication_is_its_archives_and_its_splits(publication: Publication, fetcher: Fetcher) -> None:
    found = download(publication, fetcher)
    assert [path.relative_to(fetcher.folder).as_posix() for path in found] == ["set.zip", "splits/a_split1.npy"]


def test_where_the_archives_are_gone_the_listed_files_are_fetched(
    shop: Shop, publication: Publication, fetcher: Fetcher
) -> None:
    del shop.files["set.zip"]
    shop.plans["files/training/setA/p000003.psv"] = [corrupted, cut_at(3)]
    seen: list[tuple[str, int, int | None]] = []
    fetcher.progress = lambda *step: seen.append(step)
    download(publication, fetcher)
    assert len(list(fetcher.folder.glob("set?/p*.psv"))) == 40
    assert (fetcher.folder / "setA/p000003.psv").read_bytes() == b"record A 3"
    assert ("training/", 40, 40) in seen
    assert leftovers(fetcher.folder) == []
    assert not (fetcher.folder.parent / "outside.psv").exists()


def test_a_second_run_fetches_only_the_listed_files_that_failed(
    shop: Shop, publication: Publication, fetcher: Fetcher
) -> None:
    del shop.files["set.zip"]
    shop.plans["files/training/setB/p000007.psv"] = [answering(500)] * 3
    with pytest.raises(DataError, match=r"1 of 40 files are not fetched \(first: .*p000007.psv: .*\)\nThe others"):
        download(publication, fetcher)
    shop.asked.clear()
    download(publication, fetcher)
    assert [path for path, _ in shop.asked] == ["set.zip", "files/training/setB/p000007.psv", "split1.npy"]


def test_an_unreachable_archive_is_as_good_as_gone(shop: Shop, publication: Publication, fetcher: Fetcher) -> None:
    unreachable = replace(publication, files=(Remote("http://127.0.0.1:9/set.zip", "set.zip", SHA),))
    download(unreachable, fetcher)
    assert len(list(fetcher.folder.glob("set?/p*.psv"))) == 40


def test_a_list_is_given_up_after_some_files_that_cannot_be_fetched(
    shop: Shop, publication: Publication, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raindrop.datasets.download.MOST_FAULTS", 3)
    for path in [path for path in shop.files if path.endswith(".psv") or path == "set.zip"]:
        del shop.files[path]
    with pytest.raises(DataError, match=r"40 of 40 files are not fetched"):
        download(publication, fetcher)
    assert len([path for path, _ in shop.asked if path.endswith(".psv")]) < 12


def test_gone_without_a_list_says_where_to_look(shop: Shop, publication: Publication, fetcher: Fetcher) -> None:
    only = Publication("A", (shop.remote("no.zip"),), "MIT", "https://example.org", 1, "Somebody")
    with pytest.raises(DataError, match=r"404 Not Found.\nSee https://example.org for where it is now"):
        download(only, fetcher)


def test_a_page_in_place_of_a_split_is_refused_and_not_kept(
    shop: Shop, publication: Publication, fetcher: Fetcher
) -> None:
    shop.files["split1.npy"] = b"<html>sign in</html>"
    with pytest.raises(DataError, match=r"a_split1.npy: not a split"):
        download(publication, fetcher)
    shop.files["split1.npy"] = _split_file()
    download(publication, fetcher)
    assert (fetcher.folder / "splits/a_split1.npy").exists()


def test_size_licence_and_source_are_told_before_anything_starts() -> None:
    for name, publication in PUBLICATIONS.items():
        text = announcement(publication_of(name), "data")
        assert f"about {publication.megabytes:,} MB, into data" in text
        assert publication.licence in text
        assert publication.page in text
        assert len({remote.path for remote in (*publication.files, *publication.splits)}) == len(
            publication.files
        ) + len(publication.splits)
        assert all(remote.address.startswith("https://") for remote in (*publication.files, *publication.splits))
    with pytest.raises(DataError, match="There is no data set 'p21' to download: did you mean"):
        publication_of("p21")
