"""Downloads from a local server that interrupts, delays, corrupts and redirects."""

from __future__ import annotations

import hashlib
import io
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from file_server import FileServer, Handler, corrupted, cut_at, delayed, status

from raindrop.datasets import DATASETS
from raindrop.datasets.download import Fetcher, announcement, download
from raindrop.datasets.publishers import Listing, Publication, Remote, entries_checksum
from raindrop.errors import DataError

CONTENT = np.random.default_rng(0).bytes(1_500_000)
SHA = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def server() -> Iterator[FileServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.file_server = FileServer(f"http://127.0.0.1:{server.server_port}")  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server.file_server  # type: ignore[attr-defined]
    server.shutdown()
    server.server_close()
    thread.join(timeout=5)


@pytest.fixture
def fetcher(tmp_path: Path) -> Fetcher:
    return Fetcher(tmp_path / "out", attempts=3, wait=0.001, timeout=0.5, connections=3)


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob(".*"))


def test_a_file_is_downloaded_with_progress_and_its_checksum_is_recorded(server: FileServer, tmp_path: Path) -> None:
    server.files["a.bin"] = CONTENT
    seen: list[tuple[int, int | None]] = []
    fetcher = Fetcher(tmp_path, progress=lambda path, done, total: seen.append((done, total)))
    assert fetcher.fetch(server.remote("a.bin", SHA)).read_bytes() == CONTENT
    assert seen[0] == (0, len(CONTENT))
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert len(seen) > 3
    record = json.loads((tmp_path / "checksums.json").read_text())["a.bin"]
    assert record == {"sha256": SHA, "size": len(CONTENT), "address": f"{server.address}/a.bin"}
    assert leftovers(tmp_path) == []


def test_an_interrupted_download_is_resumed(server: FileServer, fetcher: Fetcher) -> None:
    server.files["a.bin"] = CONTENT
    server.plans["a.bin"] = [cut_at(400_000), cut_at(400_001), cut_at(1_000_000)]
    assert fetcher.fetch(server.remote("a.bin", SHA)).read_bytes() == CONTENT
    assert [bytes_range for _, bytes_range in server.requests] == [
        None,
        "bytes=400000-",
        "bytes=400001-",
        "bytes=1000000-",
    ]


def test_a_later_run_resumes_the_download_of_an_earlier_one(server: FileServer, fetcher: Fetcher) -> None:
    server.files["a.bin"] = CONTENT
    server.plans["a.bin"] = [cut_at(700_000), *[status(503)] * 3]
    with pytest.raises(DataError, match=r"503 .* 3 times in a row.\n700,000 bytes are kept in .*run the same command"):
        fetcher.fetch(server.remote("a.bin", SHA))
    assert not (fetcher.folder / "a.bin").exists()
    assert Fetcher(fetcher.folder).fetch(server.remote("a.bin", SHA)).read_bytes() == CONTENT
    assert server.requests[-1] == ("a.bin", "bytes=700000-")


def test_a_download_starts_over_if_the_server_cannot_resume(server: FileServer, fetcher: Fetcher) -> None:
    server.files["a.bin"], server.ranges = CONTENT, False
    server.plans["a.bin"] = [cut_at(700_000)]
    assert fetcher.fetch(server.remote("a.bin", SHA)).read_bytes() == CONTENT


def test_two_versions_are_never_mixed(server: FileServer, fetcher: Fetcher) -> None:
    server.files["a.bin"] = CONTENT
    server.plans["a.bin"] = [cut_at(700_000), *[status(503)] * 3]
    with pytest.raises(DataError):
        fetcher.fetch(server.remote("a.bin"))
    server.files["a.bin"], server.tag = CONTENT[::-1], '"v2"'
    assert fetcher.fetch(server.remote("a.bin")).read_bytes() == CONTENT[::-1]


def test_nothing_is_resumed_without_a_checksum_or_a_version(server: FileServer, fetcher: Fetcher) -> None:
    server.files["a.bin"], server.tag = CONTENT, None
    server.plans["a.bin"] = [cut_at(700_000)]
    assert fetcher.fetch(server.remote("a.bin")).read_bytes() == CONTENT
    assert [bytes_range for _, bytes_range in server.requests] == [None, None]


def test_a_partial_file_longer_than_the_published_one_is_discarded(server: FileServer, fetcher: Fetcher) -> None:
    server.files["a.bin"] = CONTENT
    fetcher.folder.mkdir()
    (fetcher.folder / ".a.bin.part").write_bytes(CONTENT + b"more")
    assert fetcher.fetch(server.remote("a.bin", SHA)).read_bytes() == CONTENT


def test_a_corrupted_file_is_fetched_again_once(server: FileServer, fetcher: Fetcher) -> None:
    server.files["a.bin"] = CONTENT
    server.plans["a.bin"] = [corrupted]
    assert fetcher.fetch(server.remote("a.bin", SHA)).read_bytes() == CONTENT
    assert len(server.requests) == 2


def test_a_file_that_stays_corrupted_is_an_error_and_is_not_kept(server: FileServer, fetcher: Fetcher) -> None:
    server.files["a.bin"] = CONTENT
    server.plans["a.bin"] = [corrupted] * 2
    with pytest.raises(DataError, match=r"a.bin: the wrong file arrived, twice \(received SHA-256 .*\n.*nothing was"):
        fetcher.fetch(server.remote("a.bin", SHA))
    assert not (fetcher.folder / "a.bin").exists()
    assert not (fetcher.folder / ".a.bin.part").exists()


@pytest.mark.slow
def test_a_request_that_times_out_is_repeated(server: FileServer, fetcher: Fetcher) -> None:
    server.files["a.bin"] = CONTENT
    server.plans["a.bin"] = [delayed(0.8)]
    assert fetcher.fetch(server.remote("a.bin", SHA)).read_bytes() == CONTENT
    server.plans["b.bin"] = [delayed(0.8)] * 5
    with pytest.raises(DataError, match="timed out, 3 times in a row"):
        fetcher.fetch(server.remote("b.bin", SHA))


def test_redirects_are_followed_and_a_redirect_loop_is_an_error(server: FileServer, fetcher: Fetcher) -> None:
    server.files["new/a.bin"] = CONTENT
    server.plans["a.bin"] = [status(302, Location="/new/a.bin")] * 2
    server.plans["new/a.bin"] = [cut_at(500_000)]
    assert fetcher.fetch(server.remote("a.bin", SHA)).read_bytes() == CONTENT
    assert server.requests[-1] == ("new/a.bin", "bytes=500000-")
    server.plans["round"] = [status(302, Location="/round")] * 50
    with pytest.raises(DataError, match="the server answered 302"):
        fetcher.fetch(server.remote("round", SHA))


def test_a_redirect_to_a_file_of_this_machine_is_refused(server: FileServer, fetcher: Fetcher, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    server.plans["a.bin"] = [status(302, Location=f"file://{tmp_path}/secret")] * 9
    with pytest.raises(DataError):
        fetcher.fetch(server.remote("a.bin"))
    assert not (fetcher.folder / "a.bin").exists()


def test_a_busy_server_is_retried_and_a_refusal_is_not(server: FileServer, fetcher: Fetcher) -> None:
    server.files["a.bin"] = CONTENT
    server.plans["a.bin"] = [status(503), status(429)]
    assert fetcher.fetch(server.remote("a.bin", SHA)).read_bytes() == CONTENT
    server.plans["b.bin"] = [status(403)] * 9
    with pytest.raises(DataError, match=r"b.bin: the server answered 403 Forbidden\."):
        fetcher.fetch(server.remote("b.bin", SHA))
    assert len([path for path, _ in server.requests if path == "b.bin"]) == 1


def test_an_unreachable_server_is_one_clear_message(fetcher: Fetcher) -> None:
    with pytest.raises(DataError, match=r"127.0.0.1:9/x: .*refused.*, 3 times in a row"):
        fetcher.fetch(Remote("http://127.0.0.1:9/x", "x"))


def test_a_correct_file_is_not_downloaded_again_and_a_changed_one_is(server: FileServer, fetcher: Fetcher) -> None:
    server.files["a.bin"] = CONTENT
    for _ in range(2):
        fetcher.fetch(server.remote("a.bin", SHA))
    assert len(server.requests) == 1
    (fetcher.folder / "a.bin").write_bytes(CONTENT[:-1])
    assert fetcher.fetch(server.remote("a.bin", SHA)).read_bytes() == CONTENT


def test_without_a_published_checksum_later_downloads_must_match_the_first(
    server: FileServer, fetcher: Fetcher
) -> None:
    server.files["a.bin"] = CONTENT
    fetcher.fetch(server.remote("a.bin"))
    Fetcher(fetcher.folder).fetch(server.remote("a.bin"))
    assert len(server.requests) == 1
    (fetcher.folder / "a.bin").unlink()
    server.files["a.bin"] = b"something else"
    with pytest.raises(DataError, match="the wrong file arrived, twice"):
        Fetcher(fetcher.folder).fetch(server.remote("a.bin"))


def test_a_damaged_record_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "checksums.json").write_text("{")
    with pytest.raises(DataError, match=r"checksums.json: damaged. Delete it"):
        Fetcher(tmp_path)


def test_a_folder_that_cannot_be_written_is_not_blamed_on_the_network(server: FileServer, tmp_path: Path) -> None:
    server.files["a.bin"] = CONTENT
    (tmp_path / ".a.bin.part.tag").mkdir()
    with pytest.raises(DataError, match=r"\.a\.bin\.part: cannot be written \(Is a directory\)"):
        Fetcher(tmp_path, attempts=2, wait=0.001).fetch(server.remote("a.bin"))
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"file: cannot be created"):
        Fetcher(tmp_path / "file").fetch(server.remote("a.bin"))


@pytest.fixture
def publication(server: FileServer) -> Publication:
    """Archives, splits, and a list of small files for when the archives are gone."""
    records = {f"training/set{s}/p{n:06d}.psv": f"record {s} {n}".encode() for s in "AB" for n in range(20)}
    server.files |= {f"files/{path}": content for path, content in records.items()}
    sums = [f"{hashlib.sha256(content).hexdigest()} {path}" for path, content in records.items()]
    sums += [f"{SHA} LICENSE.txt", f"{SHA} ../outside.psv"]  # not below the prefix
    server.files["files/SHA256SUMS.txt"] = "\n".join(sums).encode()
    server.files["set.zip"] = CONTENT
    server.files["split1.npy"] = _split_file()
    return Publication(
        title="A data set",
        files=(Remote(f"{server.address}/set.zip", "set.zip", SHA),),
        splits=(Remote(f"{server.address}/split1.npy", "splits/a_split1.npy"),),
        listing=Listing(f"{server.address}/files/SHA256SUMS.txt", f"{server.address}/files/", "training/"),
        licence="CC BY 4.0",
        page="https://example.org",
        megabytes=2,
        citation="Somebody",
    )


def _split_file() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.arange(6).reshape(3, 2))
    return buffer.getvalue()


def test_downloading_a_publication_gives_its_archives_and_splits(publication: Publication, fetcher: Fetcher) -> None:
    paths = download(publication, fetcher)
    assert [path.relative_to(fetcher.folder).as_posix() for path in paths] == ["set.zip", "splits/a_split1.npy"]


def test_the_listed_files_are_downloaded_if_the_archives_are_unavailable(
    server: FileServer, publication: Publication, fetcher: Fetcher
) -> None:
    del server.files["set.zip"]
    server.plans["files/training/setA/p000003.psv"] = [corrupted, cut_at(3)]
    seen: list[tuple[str, int, int | None]] = []
    fetcher.progress = lambda *step: seen.append(step)
    download(publication, fetcher)
    assert len(list(fetcher.folder.glob("set?/p*.psv"))) == 40
    assert (fetcher.folder / "setA/p000003.psv").read_bytes() == b"record A 3"
    assert ("training/", 40, 40) in seen
    assert leftovers(fetcher.folder) == []
    assert not (fetcher.folder.parent / "outside.psv").exists()


OUTSIDE = [
    "../../outside.psv",
    "/etc/outside.psv",
    "a//b.psv",
    "./b.psv",
    "a/../b.psv",
    "C:/b.psv",
    "a\\b.psv",
    "a\tb",
    "",
]


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_list_that_names_a_place_outside_the_folder_is_refused_whole(
    name: str, server: FileServer, publication: Publication, fetcher: Fetcher
) -> None:
    del server.files["set.zip"]
    server.files["files/SHA256SUMS.txt"] += f"\n{SHA} training/{name}".encode()
    with pytest.raises(DataError, match="is outside the output folder; nothing was written"):
        download(publication, fetcher)
    assert [path.name for path in fetcher.folder.iterdir() if path.suffix != ".json"] == ["SHA256SUMS.txt"]


def test_a_list_that_is_not_the_known_one_is_refused(
    server: FileServer, publication: Publication, fetcher: Fetcher
) -> None:
    del server.files["set.zip"]
    entries = [
        (line.partition(" ")[2].removeprefix("training/"), line.partition(" ")[0])
        for line in server.files["files/SHA256SUMS.txt"].decode().splitlines()
        if " training/" in line
    ]
    assert publication.listing is not None
    pinned = replace(publication, listing=replace(publication.listing, sha256=entries_checksum(entries)))
    other = replace(publication, listing=replace(publication.listing, sha256=entries_checksum(entries[1:])))
    with pytest.raises(DataError, match=r"the list of 40 files is not the one that this version of raindrop knows"):
        download(other, fetcher)
    download(pinned, fetcher)
    assert len(list(fetcher.folder.glob("set?/p*.psv"))) == 40


def test_a_redirect_to_another_host_is_refused_unless_it_is_named(server: FileServer, fetcher: Fetcher) -> None:
    server.files["b.bin"] = CONTENT
    elsewhere = server.address.replace("127.0.0.1", "localhost")
    for hosts in ((), (elsewhere.removeprefix("http://"),)):
        server.plans["a.bin"] = [status(302, Location=f"{elsewhere}/b.bin")]
        remote = replace(server.remote("a.bin", SHA), hosts=hosts)
        if hosts:
            assert fetcher.fetch(remote).read_bytes() == CONTENT
        else:
            with pytest.raises(DataError, match=r"redirects to '.*localhost.*', which is not a place that its"):
                fetcher.fetch(remote)
            assert list(fetcher.folder.glob("*.bin")) == []


@pytest.mark.parametrize("length", ["many", "-5", "1e3", "\u0662"])
def test_an_impossible_length_is_a_sentence(length: str, server: FileServer, fetcher: Fetcher) -> None:
    def respond_with(handler: BaseHTTPRequestHandler, content: bytes) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", length.encode("utf-8").decode("latin-1"))
        handler.end_headers()
        handler.wfile.write(content)
        handler.close_connection = True

    server.files["a.bin"] = CONTENT
    server.plans["a.bin"] = [respond_with] * 3
    with pytest.raises(DataError, match=r"the server announced .* as the length of the file, 3 times in a row"):
        fetcher.fetch(server.remote("a.bin", SHA))


def test_a_second_run_downloads_only_the_files_that_failed(
    server: FileServer, publication: Publication, fetcher: Fetcher
) -> None:
    del server.files["set.zip"]
    server.plans["files/training/setB/p000007.psv"] = [status(500)] * 3
    with pytest.raises(
        DataError, match=r"1 of 40 files could not be downloaded \(first: .*p000007.psv: .*\)\nThe others"
    ):
        download(publication, fetcher)
    server.requests.clear()
    download(publication, fetcher)
    assert [path for path, _ in server.requests] == ["set.zip", "files/training/setB/p000007.psv", "split1.npy"]


def test_an_unreachable_archive_counts_as_unavailable(
    server: FileServer, publication: Publication, fetcher: Fetcher
) -> None:
    unreachable = replace(publication, files=(Remote("http://127.0.0.1:9/set.zip", "set.zip", SHA),))
    download(unreachable, fetcher)
    assert len(list(fetcher.folder.glob("set?/p*.psv"))) == 40


def test_a_list_is_abandoned_after_several_failures(
    server: FileServer, publication: Publication, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raindrop.datasets.download.MAX_FAILURES", 3)
    for path in [path for path in server.files if path.endswith(".psv") or path == "set.zip"]:
        del server.files[path]
    with pytest.raises(DataError, match=r"40 of 40 files could not be downloaded"):
        download(publication, fetcher)
    assert len([path for path, _ in server.requests if path.endswith(".psv")]) < 12


def test_an_unavailable_file_without_a_list_is_an_error_with_the_page_to_look_at(
    server: FileServer, publication: Publication, fetcher: Fetcher
) -> None:
    only = Publication("A", (server.remote("no.zip"),), "MIT", "https://example.org", 1, "Somebody")
    with pytest.raises(DataError, match=r"404 Not Found.\nSee https://example.org for where it is now"):
        download(only, fetcher)


def test_a_web_page_instead_of_a_split_is_refused_and_not_kept(
    server: FileServer, publication: Publication, fetcher: Fetcher
) -> None:
    server.files["split1.npy"] = b"<html>sign in</html>"
    with pytest.raises(DataError, match=r"a_split1.npy: not a split"):
        download(publication, fetcher)
    server.files["split1.npy"] = _split_file()
    download(publication, fetcher)
    assert (fetcher.folder / "splits/a_split1.npy").exists()


def test_the_announcement_has_size_licence_and_source() -> None:
    for dataset in DATASETS.values():
        publication = dataset.PUBLICATION
        text = announcement(publication, "data")
        assert f"about {publication.megabytes:,} MB, into data" in text
        assert publication.licence in text
        assert publication.page in text
        assert len({remote.path for remote in (*publication.files, *publication.splits)}) == len(
            publication.files
        ) + len(publication.splits)
        assert all(remote.address.startswith("https://") for remote in (*publication.files, *publication.splits))
