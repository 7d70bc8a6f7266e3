"""Vector files: round trips, errors with the place of the flaw, and subsets that read no further rows."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as some

from ragauge.core.errors import BackendFailed, BadInput, MissingExtra, UnknownName
from ragauge.files.vectors import VECTOR_FILE_ENDINGS, read_vectors
from ragauge.store_benchmarks import ann_benchmarks_hdf5, hdf5_worker
from ragauge.store_benchmarks.ann_benchmarks_hdf5 import read_hdf5
from ragauge.store_benchmarks.results import ExactNeighbours, VectorSet
from vector_file_writers import write_hdf5, write_vectors

KINDS = {".fvecs": "f4", ".ivecs": "i4", ".bvecs": "u1", ".fbin": "f4", ".ibin": "i4", ".u8bin": "u1", ".i8bin": "i1"}
SHAPES = st.tuples(st.integers(1, 8), st.integers(1, 6))


def arrays(kind: str):
    return SHAPES.flatmap(
        lambda shape: some.arrays(
            kind,
            shape,
            elements={"allow_nan": False, "allow_infinity": False} if kind.startswith("f") else None,
        )
    )


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize("ending", [*KINDS, ".npy"])
@given(data=st.data())
@pytest.mark.slow
def test_write_vectors_round_trip_whole_and_max_rows(tmp_path_factory, ending, packed, data):
    matrix = data.draw(arrays(KINDS.get(ending, data.draw(st.sampled_from(["f2", "f4", "f8", "i8", "u1"])))))
    path = tmp_path_factory.mktemp("vectors") / f"some{ending}{packed}"
    write_vectors(path, matrix)
    result = read_vectors(path)
    assert result.vectors.dtype == matrix.dtype
    assert result.ids == ()
    np.testing.assert_array_equal(result.vectors, matrix)
    max_rows = data.draw(st.integers(1, len(matrix) + 2))
    np.testing.assert_array_equal(read_vectors(path, max_rows=max_rows).vectors, matrix[:max_rows])


@given(matrix=arrays("f4"), named=st.booleans())
def test_write_vectors_parquet_keeps_vectors_and_ids(tmp_path_factory, matrix, named):
    path = tmp_path_factory.mktemp("vectors") / "some.parquet"
    ids = [f"d{i}" for i in range(len(matrix))] if named else []
    write_vectors(path, matrix, ids)
    result = read_vectors(path)
    np.testing.assert_array_equal(result.vectors, matrix)
    assert list(result.ids) == ids
    assert len(read_vectors(path, max_rows=1).vectors) == 1


def test_read_vectors_packed_by_hand(tmp_path):
    rows = np.array([[1, 2], [3, 4], [5, 6]])
    for name, content in (
        ("a.fvecs", b"".join(struct.pack("<iff", 2, *row) for row in rows.tolist())),
        ("a.bvecs", b"".join(struct.pack("<iBB", 2, *row) for row in rows.tolist())),
        ("a.i8bin", struct.pack("<II6b", 3, 2, *rows.ravel().tolist())),
    ):
        (tmp_path / name).write_bytes(content)
        np.testing.assert_array_equal(read_vectors(tmp_path / name).vectors, rows)


def test_read_vectors_header_equal_to_byte_order_mark_is_number(tmp_path):
    path = tmp_path / "many.u8bin"
    path.write_bytes(b"\xef\xbb\xbf\x00" + struct.pack("<I", 2) + bytes(range(8)))
    assert read_vectors(path, max_rows=3).vectors.tolist() == [[0, 1], [2, 3], [4, 5]]


def test_read_vectors_ibin_ignores_distances_after_neighbours(tmp_path):
    near = np.array([[1, 0], [0, 1]], "<i4")
    (tmp_path / "gt.ibin").write_bytes(struct.pack("<II", 2, 2) + near.tobytes() + np.ones((2, 2), "<f4").tobytes())
    assert read_vectors(tmp_path / "gt.ibin").vectors.tolist() == near.tolist()


@pytest.mark.parametrize(
    ("name", "body", "message"),
    [
        ("a.fvecs", b"", "is empty"),
        ("a.fvecs", struct.pack("<iff", 2, 1, 2)[:-1], r"ends in the middle of row 0 \(byte 11\)"),
        ("a.fvecs", struct.pack("<iffi", 2, 1, 2, 2), r"ends in the middle of row 1 \(byte 16\)"),
        ("a.bvecs", struct.pack("<iBBiBB", 2, 1, 2, 3, 1, 2), r"row 1 \(byte 6\) has 3 dimensions, the first has 2"),
        ("a.fvecs", b"PAR1 and more", "first row would have 827474256 dimensions"),
        ("a.ivecs", struct.pack("<i", -1), "would have -1 dimensions"),
        ("a.fvecs", struct.pack("<iffiff", 2, 1, 2, 2, 1, float("nan")), "row 1 has a NaN"),
        ("a.fbin", b"\x01\x00", r"ends in its header \(byte 2\)"),
        ("a.fbin", struct.pack("<IIff", 2, 2, 1, 2), r"ends in row 1 \(byte 16\) of 2, the number in its header"),
        ("a.fbin", struct.pack("<IIff", 1, 1, 1, 2), "4 extra bytes after the last row"),
        ("a.fbin", struct.pack("<II", 5, 0), "5 rows of 0 dimensions"),
        ("a.npy", b"no such thing", "does not begin like an .npy file"),
        ("a.npy", b"\x93NUMPY\x01\x00", "cannot be read as an .npy file"),
        ("a.parquet", b"PAR1", "cannot be read as Parquet"),
        ("a.fvecs.gz", gzip.compress(struct.pack("<iff", 2, 1, 2), mtime=0)[:-6], "cannot be read to its end"),
    ],
)
def test_read_vectors_corrupt_file_raises_with_place(tmp_path, name, body, message):
    (tmp_path / name).write_bytes(body)
    with pytest.raises(BadInput, match=message) as caught:
        read_vectors(tmp_path / name)
    assert name in str(caught.value)
    assert "\n\n" not in caught.value.message


def test_read_vectors_max_rows_reads_no_further(tmp_path):
    complete, truncated = tmp_path / "a.fvecs", tmp_path / "torn.fvecs"
    write_vectors(complete, np.arange(20).reshape(10, 2))
    truncated.write_bytes(complete.read_bytes()[:-3])
    assert len(read_vectors(truncated, max_rows=9).vectors) == 9
    (tmp_path / "torn.fvecs.gz").write_bytes(gzip.compress(complete.read_bytes())[:-9])
    assert read_vectors(tmp_path / "torn.fvecs.gz", max_rows=1).vectors.tolist() == [[0, 1]]
    with pytest.raises(BadInput, match="max_rows must be at least 1"):
        read_vectors(complete, max_rows=0)


def test_read_vectors_npy_invalid_arrays_and_pickles_raise_error(tmp_path):
    for array in (np.zeros(3), np.zeros((2, 3, 4)), np.zeros((2, 0)), np.array([["a"]])):
        np.save(tmp_path / "a.npy", array)
        with pytest.raises(BadInput, match="holds an array of shape"):
            read_vectors(tmp_path / "a.npy")
    np.save(tmp_path / "code.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(BadInput, match=r"cannot be read as an \.npy file"):
        read_vectors(tmp_path / "code.npy")


def test_read_vectors_npy_is_memory_mapped(tmp_path):
    np.save(tmp_path / "a.npy", np.ones((4, 3), np.float32))
    assert isinstance(read_vectors(tmp_path / "a.npy", max_rows=2).vectors.base, np.memmap)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"v": [[1.0, 2.0], [1.0]]}, "row 1 of the column 'v' has 1 dimensions, the first has 2"),
        ({"v": [[1.0, 2.0], None]}, "row 1 of the column 'v' has nothing"),
        ({"v": [[], []]}, "no column contains|has nothing"),
        ({"v": [[1.0, None]]}, "row 0 of the column 'v' has an empty value"),
        ({"v": [[1.0, float("inf")]]}, "row 0 has a NaN or an infinity"),
        ({"a": [[1.0]], "b": [[2.0]]}, "several columns contain vectors: 'a', 'b'"),
        ({"a": [1.0]}, "no column contains lists of numbers"),
        ({"v": [[1.0], [2.0]], "id": ["x", "x"]}, "row 1 has the id 'x' of an earlier row"),
        ({"v": [[1.0], [2.0]], "id": ["x", None]}, "row 1 has no id"),
    ],
)
def test_read_vectors_parquet_invalid_columns_raise_error(tmp_path, columns, message):
    pl.DataFrame(columns).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(BadInput, match=message):
        read_vectors(tmp_path / "a.parquet")


def test_read_vectors_parquet_column_is_selected_by_name(tmp_path):
    pl.DataFrame({"a": [[1.0]], "embedding": [[2.0]], "b": [[3.0]]}).write_parquet(tmp_path / "a.parquet")
    assert read_vectors(tmp_path / "a.parquet").vectors.tolist() == [[2]]
    assert read_vectors(tmp_path / "a.parquet", column="b").vectors.tolist() == [[3]]
    with pytest.raises(BadInput, match="'c' contains no vectors"):
        read_vectors(tmp_path / "a.parquet", column="c")


def test_read_vectors_unknown_ending_or_missing_file_raises_error(tmp_path):
    with pytest.raises(UnknownName, match=r"did you mean `\.fvecs`"):
        read_vectors(_write_corrupt(tmp_path / "a.fvec"))
    with pytest.raises(BadInput, match="no such file"):
        read_vectors(tmp_path / "nowhere.fvecs")


def _write_corrupt(path):
    path.write_bytes(b"1")
    return path


def test_vector_file_endings_are_all_tested():
    assert set(KINDS) | {".npy", ".parquet"} == set(VECTOR_FILE_ENDINGS)


@pytest.fixture
def hdf5(tmp_path):
    h5py = pytest.importorskip("h5py")

    def write(name="a.hdf5", distance="euclidean", **tables):
        with h5py.File(tmp_path / name, "w") as file:
            if distance is not None:
                file.attrs["distance"] = distance
            for key, table in tables.items():
                file[key] = table
        return tmp_path / name

    return write


BASE = np.array([[0, 0], [0, 1], [5, 5]], np.float32)


@pytest.mark.parametrize(("distance", "metric"), [("euclidean", "l2"), ("angular", "cosine"), ("dot", "ip")])
@pytest.mark.slow
def test_write_hdf5_round_trip(tmp_path, distance, metric):
    h5py = pytest.importorskip("h5py")
    near, far = np.array([[0, 1]]), np.array([[0.0, 1.0]])
    data = VectorSet("made", BASE, BASE[:1], metric)
    write_hdf5(tmp_path / "a.hdf5", data, ExactNeighbours(near, far, metric, "numpy"))
    with h5py.File(tmp_path / "a.hdf5") as file:
        assert file.attrs["distance"] == distance
        assert set(file) == {"train", "test", "neighbors", "distances"}
    result = read_hdf5(tmp_path / "a.hdf5")
    assert (result.name, result.metric) == ("a", metric)
    np.testing.assert_array_equal(result.base, BASE)
    np.testing.assert_array_equal(result.neighbours, near)
    assert result.neighbours.dtype == np.int64
    assert list(tmp_path.iterdir()) == [tmp_path / "a.hdf5"]


@pytest.mark.slow
def test_read_hdf5_neighbours_of_subset_or_other_metric_are_left_out(hdf5):
    path = hdf5(train=BASE, test=BASE, neighbors=np.zeros((3, 2), int))
    assert read_hdf5(path).neighbours.shape == (3, 2)
    assert read_hdf5(path, max_queries=2).neighbours.shape == (2, 2)
    assert read_hdf5(path, max_vectors=2).neighbours is None
    assert read_hdf5(path, max_vectors=2).base.shape == (2, 2)
    assert read_hdf5(path, metric="cosine").neighbours is None


@pytest.mark.slow
def test_read_hdf5_metric_defaults_to_file_name(hdf5):
    assert read_hdf5(hdf5("x-2-angular.hdf5", None, train=BASE, test=BASE)).metric == "cosine"
    with pytest.raises(BadInput, match="the attribute `distance` is missing"):
        read_hdf5(hdf5("x.hdf5", None, train=BASE, test=BASE))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train": BASE}, "`test` is missing; found train"),
        ({"distance": "jaccard", "train": BASE, "test": BASE}, "unknown distance 'jaccard'"),
        ({"train": BASE, "test": BASE[:, :1]}, "2 dimensions and `test` has 1"),
        ({"train": BASE[0], "test": BASE}, "`train` is not a table"),
        ({"train": BASE * np.nan, "test": BASE}, "row 0 of `train` has a NaN"),
    ],
)
@pytest.mark.slow
def test_read_hdf5_invalid_tables_raise_error(hdf5, options, message):
    with pytest.raises(BadInput, match=message):
        read_hdf5(hdf5(**options))


def test_read_hdf5_invalid_file_or_missing_h5py_raises_error(tmp_path, monkeypatch):
    pytest.importorskip("h5py")
    (tmp_path / "a.h5").write_bytes(b"no")
    with pytest.raises(BadInput, match="cannot be read as HDF5"):
        read_hdf5(tmp_path / "a.h5")
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    with pytest.raises(MissingExtra, match=r"pip install .*\[hdf5\]"):
        read_hdf5(tmp_path / "a.h5")


def _corrupt_attribute(path: Path) -> None:
    """Set the stored length of the attribute `distance` to 0, which makes libhdf5 loop forever when it reads it."""
    data = bytearray(path.read_bytes())
    offset = data.index(b"euclidean", data.index(b"GCOL")) - 8
    assert data[offset] == 9
    data[offset] = 0
    path.write_bytes(data)


@pytest.mark.slow
def test_read_hdf5_file_that_hangs_libhdf5_raises_error(hdf5, monkeypatch):
    path = hdf5(train=BASE, test=BASE)
    _corrupt_attribute(path)
    monkeypatch.setattr(ann_benchmarks_hdf5, "MAX_SILENCE_S", 4.0)
    with pytest.raises(BadInput, match=r"a\.hdf5: is corrupt: libhdf5 gave no answer within 4 s") as caught:
        read_hdf5(path)
    assert (caught.value.exit_code, caught.value.file) == (2, str(path))


def test_read_hdf5_slow_process_start_is_not_corrupt(hdf5, monkeypatch):
    monkeypatch.setattr(ann_benchmarks_hdf5, "MAX_SILENCE_S", 0.001)
    with pytest.raises(BackendFailed, match=r"the process that reads .*a\.hdf5 did not start within 0\.001 s"):
        read_hdf5(hdf5(train=BASE, test=BASE))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"chunks": (7, 3), "compression": "gzip", "shuffle": True},
        {"chunks": (1000, 8)},
        {"dtype": ">f8"},
        {"dtype": "<f2"},
        {"dtype": "i2"},
        {"maxshape": (None, 8)},
    ],
    ids=str,
)
@pytest.mark.slow
def test_read_hdf5_every_storage_layout_is_equal(tmp_path, options):
    h5py = pytest.importorskip("h5py")
    rows = np.random.default_rng(0).integers(0, 100, (1000, 8)).astype(np.float32)
    with h5py.File(tmp_path / "a.hdf5", "w", userblock_size=512) as file:
        file.attrs["distance"] = "euclidean"
        for name in ("train", "test"):
            file.create_dataset(name, data=rows, **options)
    np.testing.assert_array_equal(read_hdf5(tmp_path / "a.hdf5").base, rows)
    result = read_hdf5(tmp_path / "a.hdf5", max_vectors=10, max_queries=3)
    np.testing.assert_array_equal(result.base, rows[:10])
    np.testing.assert_array_equal(result.queries, rows[:3])


def test_hdf5_worker_copies_rows_in_blocks(tmp_path, monkeypatch):
    h5py = pytest.importorskip("h5py")
    rows = np.random.default_rng(0).random((100, 4), np.float32)
    events = []
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        table = file.create_dataset("train", data=rows, chunks=(3, 4))
        monkeypatch.setattr(hdf5_worker, "BLOCK_BYTES", 200)
        hdf5_worker._copy_rows(table, 50, tmp_path / "a.hdf5", tmp_path / "copy", events.append)
    assert [event["rows"] for event in events] == [12, 24, 36, 48, 50]
    np.testing.assert_array_equal(np.fromfile(tmp_path / "copy", np.float32).reshape(-1, 4), rows[:50])


def test_read_hdf5_table_beyond_end_of_file_raises_error(hdf5):
    path = hdf5(train=BASE, test=BASE)
    data = path.read_bytes()
    shape = (3).to_bytes(8, "little") + (2).to_bytes(8, "little")
    path.write_bytes(data.replace(shape, (3 << 40).to_bytes(8, "little") + (2).to_bytes(8, "little")))
    with pytest.raises(BadInput, match=r"a\.hdf5: "):
        read_hdf5(path)


@pytest.mark.slow
def test_read_hdf5_fill_values_above_limit_raises_error(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file.attrs["distance"] = "euclidean"
        file.create_dataset("train", (1 << 36, 8), "f4", chunks=(1024, 8))
        file["test"] = np.zeros((2, 8), np.float32)
    with pytest.raises(BadInput, match=r"`train` has 2,199,023 MB, more than 100 times the file"):
        read_hdf5(tmp_path / "a.hdf5")
    assert read_hdf5(tmp_path / "a.hdf5", max_vectors=3).base.shape == (3, 8)


@pytest.mark.parametrize("kind", ["external storage", "external link", "soft link", "virtual dataset"])
@pytest.mark.parametrize("name", ["train", "test", "neighbors"])
@pytest.mark.slow
def test_read_hdf5_table_outside_the_file_is_refused(tmp_path, kind, name):
    h5py = pytest.importorskip("h5py")
    private = tmp_path / "private.hdf5"
    with h5py.File(private, "w") as file:
        file["secret"] = BASE
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file.attrs["distance"] = "euclidean"
        for table in {"train", "test", "neighbors"} - {name}:
            file[table] = BASE
        if kind == "external storage":
            file.create_dataset(name, (4, 2), "f4", external=[(str(private), 0, 32)])
        elif kind == "virtual dataset":
            layout = h5py.VirtualLayout((3, 2), "f4")
            layout[:] = h5py.VirtualSource(str(private), "secret", (3, 2))
            file.create_virtual_dataset(name, layout)
        else:
            file["outside"] = h5py.ExternalLink(str(private), "/")
            file[name] = (
                h5py.ExternalLink(str(private), "secret")
                if kind == "external link"
                else h5py.SoftLink("/outside/secret")
            )
    with pytest.raises(BadInput, match=rf"a\.hdf5: `{name}` is not stored in the file itself"):
        read_hdf5(tmp_path / "a.hdf5")
