"""Where the data sets are published: addresses, sizes, checksums and licences.

Checksums are the SHA-256 of the files as their publishers serve them. Where none is known, the checksum of the first
download is recorded and later downloads are compared with it.
"""

from __future__ import annotations

from dataclasses import dataclass

PHYSIONET = "https://physionet.org/files"
AUTHORS = "https://raw.githubusercontent.com/mims-harvard/Raindrop/892eb5734e84aa8d18476c6a8975b55b2f30e1d1"


@dataclass(frozen=True)
class Remote:
    """A file to download, and its path in the output folder."""

    address: str
    path: str
    sha256: str | None = None


@dataclass(frozen=True)
class Listing:
    """Many files whose names and checksums are in a published list (lines of: SHA-256, path)."""

    address: str
    root: str
    """The paths of the list are relative to this address."""
    prefix: str
    """Only paths with this prefix are downloaded; the rest of the path is the path in the output folder."""


@dataclass(frozen=True)
class Publication:
    """What to fetch for one data set."""

    title: str
    files: tuple[Remote, ...]
    licence: str
    page: str
    megabytes: int
    citation: str
    splits: tuple[Remote, ...] = ()
    """The paper's splits, by the paper's authors."""
    listing: Listing | None = None
    """Used if `files` are no longer served."""


def _p12_file(name: str, sha256: str) -> Remote:
    return Remote(f"{PHYSIONET}/challenge-2012/1.0.0/{name}", name, sha256)


def _split_files(pattern: str) -> tuple[Remote, ...]:
    """The authors' five splits, at a fixed commit."""
    return tuple(
        Remote(f"{AUTHORS}/{pattern.format(number)}", f"splits/{pattern.format(number).rsplit('/', 1)[-1]}")
        for number in range(1, 6)
    )


PUBLICATIONS = {
    "p12": Publication(
        title="PhysioNet/CinC Challenge 2012 (P12)",
        files=(
            _p12_file("set-a.tar.gz", "8cb250f179cd0952b4b9ebcf8954b63d70383131670fac1cfee13deaa13ca920"),
            _p12_file("set-b.tar.gz", "b1637a2a423a8e76f8f087896cfc5fdf28f88519e1f4e874fbda69b2a64dac30"),
            _p12_file("set-c.tar.gz", "a4a56b95bcee4d50a3874fe298bf2998f2ed0dd98a676579573dc10419329ee1"),
            _p12_file("Outcomes-a.txt", "2613ea60ccda29f87571a7d6b09ad130858a8ccd66325bd073365925026883c2"),
            _p12_file("Outcomes-b.txt", "1305f29734da374a809483229a99f33a9230aa8d4fa74b1a2d6ad788136423d5"),
            _p12_file("Outcomes-c.txt", "0b32dcb7753c0f18f2f5fde498a28618b8879c5e527ce0dae8ad120dd7e205c9"),
        ),
        splits=_split_files("P12data/splits/phy12_split{}.npy"),
        licence="Open Data Commons Attribution License v1.0; the splits: MIT",
        page="https://physionet.org/content/challenge-2012/1.0.0/",
        megabytes=21,
        citation="Silva, Moody, Mark, Celi: Predicting mortality of ICU patients (Computing in Cardiology 2012)",
    ),
    "p19": Publication(
        title="PhysioNet/CinC Challenge 2019 (P19)",
        files=(
            Remote(
                "https://archive.physionet.org/users/shared/challenge-2019/training_setA.zip",
                "training_setA.zip",
                sha256="c0def317798312e4facc0f33ac0202b3a34f412052d9096e8b122b4d3ecb7935",
            ),
            Remote(
                "https://archive.physionet.org/users/shared/challenge-2019/training_setB.zip",
                "training_setB.zip",
                sha256="8a88d69a5f64bc9a87d869f527fcc2741c0712cb9a7cb1f5cdcb725336b4c8cc",
            ),
        ),
        splits=_split_files("P19data/splits/phy19_split{}_new.npy"),
        listing=Listing(
            address=f"{PHYSIONET}/challenge-2019/1.0.0/SHA256SUMS.txt",
            root=f"{PHYSIONET}/challenge-2019/1.0.0/",
            prefix="training/",
        ),
        licence="Creative Commons Attribution 4.0; the splits: MIT",
        page="https://physionet.org/content/challenge-2019/1.0.0/",
        megabytes=42,
        citation="Reyna et al.: Early prediction of sepsis from clinical data (Critical Care Medicine 48, 2020)",
    ),
    "pam": Publication(
        title="PAMAP2 physical activity monitoring (PAM)",
        files=(
            Remote(
                "https://archive.ics.uci.edu/static/public/231/pamap2+physical+activity+monitoring.zip",
                "pamap2.zip",
                sha256="76b3580bd5a804121f507717cb498c66a312ef5c774f4a78ac470e6558add352",
            ),
        ),
        splits=_split_files("PAMdata/splits/PAM_split_{}.npy"),
        licence="Creative Commons Attribution 4.0; the splits: MIT",
        page="https://archive.ics.uci.edu/dataset/231/pamap2+physical+activity+monitoring",
        megabytes=690,
        citation="Reiss, Stricker: Introducing a new benchmarked dataset for activity monitoring (ISWC 2012)",
    ),
}
