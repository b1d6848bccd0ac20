"""TensorBoard's Embedding Projector: a folder of two files of tab-separated values, and the note that names them.

`vectors.tsv` holds a row of numbers a line, `metadata.tsv` a heading and then a token a line. Nothing in them is
quoted: the Projector splits lines at tabs alone. They load at https://projector.tensorflow.org, and
`tensorboard --logdir FOLDER` opens them by `projector_config.pbtxt`. To read the tokens otherwise, let a quote be a
sign like any other: `csv.reader(file, delimiter="\\t", quoting=csv.QUOTE_NONE)`, or
`pandas.read_csv(path, sep="\\t", quoting=3, keep_default_na=False)`.

Source: tensorflow/tensorboard, plugins/projector: projector_plugin.py (reading of TSV), projector_config.proto.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import BinaryIO

from inspect_embed.outputs import Part
from inspect_embed.outputs._number_text import write_numbers
from inspect_embed.report import Report


def parts(report: Report, path: Path) -> Mapping[Path, Part]:
    """The files of the folder, and what writes each."""
    return {
        path / "vectors.tsv": partial(_write_vectors, report),
        path / "metadata.tsv": partial(_write_metadata, report),
        path / "projector_config.pbtxt": _write_config,
    }


def _write_vectors(report: Report, file: BinaryIO) -> None:
    for line in write_numbers(report.arrays["vectors"], "\t"):
        file.write(line.encode() + b"\n")


def _write_metadata(report: Report, file: BinaryIO) -> None:
    import numpy as np

    columns = {"token": report.arrays["tokens"], "id": report.arrays["ids"].tolist()}
    if "coordinates" in report.arrays:
        x, y = np.asarray(report.arrays["coordinates"], np.float64).T.tolist()
        columns.update(x=x, y=y)
    file.write("\t".join(columns).encode() + b"\n")
    for row in zip(*columns.values(), strict=True):
        file.write("\t".join(map(str, row)).encode() + b"\n")


def _write_config(file: BinaryIO) -> None:
    file.write(
        b'embeddings {\n  tensor_name: "tokens"\n  tensor_path: "vectors.tsv"\n  metadata_path: "metadata.tsv"\n}\n'
    )
