# SPDX-License-Identifier: Apache-2.0
"""Lab files: what they say, and where a mistake is."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import emu.lab
from emu.control.locate import LAB_NAME
from emu.lab.file import LabFileError, format_lab, load_lab, parse_lab
from emu.lab.topology import MIB, Gpu, Lab, Nic, Node

EXAMPLES = sorted((Path(emu.lab.__file__).parent / "examples").glob("*.toml"))

PAIR = """\
name = "pair"
loss = 0.25
seed = 7

[[node]]
name = "left"
memory = "256M"

[[node.nic]]
mac = "02:00:00:00:00:09"

[[node.gpu]]
vram = "32M"

[[node]]
name = "right"
cpus = 2
nic = [{}, { loss = 0 }]
"""


def test_a_file_is_the_same_as_the_values() -> None:
    assert parse_lab(PAIR) == Lab(
        nodes=(
            Node("left", (Nic(mac="02:00:00:00:00:09"),), (Gpu("32M"),), memory="256M"),
            Node("right", (Nic(), Nic(loss=0)), (), cpus=2),
        ),
        name="pair",
        loss=0.25,
        seed=7,
    )


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_loads_and_says_which_lab_it_is(path: Path) -> None:
    assert load_lab(path).name == path.stem


def test_there_are_examples() -> None:
    assert {"pair", "lossy", "rail"} <= {path.stem for path in EXAMPLES}


@pytest.mark.parametrize(
    ("change", "line", "message"),
    [
        (('name = "pair"', 'nmae = "pair"'), 1, r"unknown key 'nmae' \(did you mean 'name'\?\)"),
        (('name = "pair"', 'name = "../pair"'), 1, "'../pair' is no name for a lab"),
        (("loss = 0.25", 'loss = "much"'), 2, "'loss' must be a whole number or a number"),
        (("loss = 0.25", "loss = 1.25"), 2, "loss 1.25 is not a probability"),
        (("loss = 0.25", "trim = 1.25"), 2, "trim 1.25 is not a probability"),
        (("loss = 0.25", "llr = 1"), 2, "'llr' must be true or false"),
        (("loss = 0.25", "speed_mbps = -1"), 2, "speed_mbps -1 is not in 0..400000"),
        (("loss = 0.25", "queue_kib = 1"), 2, "queue_kib 1 is not in 16"),
        (("loss = 0.25", "trim_kib = 513"), 2, r"trim_kib 513 is not in 0\.\.512"),
        (("loss = 0.25", "ecn_min_kib = 5"), 1, "needs ecn_min_kib, where it begins, and ecn_max_kib"),
        (("loss = 0.25", "ecn_max_kib = 5\necn_min_kib = 6"), 3, "ecn_min_kib 6 is negative, or above"),
        (("loss = 0.25", 'secret = "key"'), 2, "a secret is 64 hexadecimal digits"),
        (("loss = 0.25", 'secret_file = "nowhere"'), 2, "secret_file 'nowhere': No such file"),
        (("loss = 0.25", 'secret = ""\nsecret_file = "x"'), 3, "'secret' and 'secret_file' at once"),
        (("{ loss = 0 }", '{ secret = "key" }'), 18, "node 'right', nic 1: a secret is 64"),
        (("seed = 7", "seed = true"), 3, "'seed' must be a whole number"),
        (('name = "left"', 'name = "Left"'), 6, "node 'Left': 'Left' is not a node name"),
        (('memory = "256M"', "memory = 1"), 7, "node 'left': memory must be"),
        (('memory = "256M"', 'ram = "256M"'), 7, "node 'left': unknown key 'ram'"),
        (("[[node.nic]]", "[[node.nics]]"), 9, r"node 'left': unknown key 'nics' \(did you mean 'nic'\?\)"),
        (("02:00:00:00:00:09", "02:00:00:00:09"), 10, "node 'left', nic 0: '02:00:00:00:09' is not a MAC"),
        (('vram = "32M"', 'vram = "33M"'), 13, "node 'left', gpu 0: vram must be a power of two"),
        (('name = "right"', 'name = "left"'), 16, "node 'left': the name 'left' is taken"),
        (("cpus = 2", 'cpus = "2"'), 17, "node 'right': 'cpus' must be a whole number"),
        (("{ loss = 0 }", "{ loss = 2 }"), 18, "node 'right', nic 1: loss 2 is not"),
        (("nic = [{}, { loss = 0 }]", "nic = 2"), 18, "node 'right': 'nic' must be an array of tables"),
        (("nic = [{}, { loss = 0 }]", "nic = [1]"), 18, r"node 'right', nic 0: 'nic' must hold tables"),
        (('name = "right"\n', ""), 15, "node 1: a node needs a name"),
        (("cpus = 2", "cpus = "), 17, r"Invalid value \(column 8\)"),
        (("[[node.gpu]]", "[[node.gpu"), 12, "column"),
    ],
)
def test_a_mistake_is_shown_with_its_line(change: tuple[str, str], line: int, message: str) -> None:
    text = PAIR.replace(*change)
    assert text != PAIR
    with pytest.raises(LabFileError, match=message) as caught:
        parse_lab(text, "my.toml")
    assert str(caught.value).startswith(f"my.toml:{line}: ")


def test_strings_that_look_like_headers_do_not_move_the_line() -> None:
    text = 'name = """\n[[node]]\n[[node]]\nseed = 1\n"""\nseed = "x"\n'
    with pytest.raises(LabFileError, match=r"^lab\.toml:6: 'seed'"):
        parse_lab(text)


def test_values_over_several_lines_and_comments_do_not_move_the_line() -> None:
    first = '[[node]] # first\nname = "a"\nnic = [\n  {}, # one\n  {},\n]\n'
    text = first + '# [[node]]\n[[node]]\nname = "b"\nvram = 3\n'
    with pytest.raises(LabFileError, match=r"^lab\.toml:10: node 'b': unknown key 'vram'"):
        parse_lab(text)


def test_dotted_and_quoted_keys_are_found() -> None:
    with pytest.raises(LabFileError, match=r"^lab\.toml:3: unknown key 'fab ric'"):
        parse_lab('seed = 1\n\n"fab ric".loss = 0.1\n')


def test_a_single_table_instead_of_an_array_is_explained() -> None:
    with pytest.raises(LabFileError, match=r"^lab\.toml:2: 'node' must be an array of tables"):
        parse_lab('seed = 1\n[node]\nname = "a"\n')


@given(st.text(max_size=200))
def test_any_text_is_a_lab_or_a_named_mistake(text: str) -> None:
    try:
        parse_lab(text)
    except LabFileError as error:
        assert str(error).startswith("lab.toml:")


@given(
    st.lists(
        st.tuples(
            st.from_regex(r"\A[a-z][a-z0-9-]{0,8}\Z"),
            st.lists(
                st.builds(
                    Nic,
                    loss=st.none() | st.floats(0, 0.5),
                    trim=st.none() | st.floats(0, 0.5),
                    mark=st.none() | st.floats(0, 0.5),
                    llr=st.none() | st.booleans(),
                    pfc=st.none() | st.booleans(),
                    symbol_errors=st.none() | st.floats(0, 0.5),
                    speed_mbps=st.none() | st.sampled_from([0, 8, 100.5, 400_000]),
                    secret=st.sampled_from([None, "", "0f" * 32]),
                    delay_us=st.integers(0, 99),
                ),
                max_size=3,
            ),
            st.lists(st.builds(Gpu, vram=st.sampled_from(["1M", 2 * MIB, "1G"])), max_size=2),
        ),
        min_size=1,
        max_size=4,
        unique_by=lambda entry: entry[0],
    ),
    st.from_regex(LAB_NAME, fullmatch=True),
    st.integers(0, (1 << 32) - 1),
)
def test_a_written_lab_reads_back_the_same(
    nodes: list[tuple[str, list[Nic], list[Gpu]]], name: str, seed: int
) -> None:
    lab = Lab(
        tuple(Node(node, tuple(nics), tuple(gpus)) for node, nics, gpus in nodes),
        name=name,
        seed=seed,
        speed_mbps=50,
        ecn_min_kib=seed % 3,
        ecn_max_kib=3,
        trim_kib=seed % 17 or None,
        pause=[None, True, False][seed % 3],
        secret="1e" * 32,
    )
    again = parse_lab(format_lab(lab))
    assert (again.name, again.seed, again.nics, again.gpus) == (lab.name, lab.seed, lab.nics, lab.gpus)
    assert (again.loss, again.trim, again.mark) == (lab.loss, lab.trim, lab.mark)
    assert (again.speed_mbps, again.secret, again.pause) == (lab.speed_mbps, lab.secret, lab.pause)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(LabFileError, match=r"nowhere\.toml: No such file"):
        load_lab(tmp_path / "nowhere.toml")
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b'name = "a"\n\xff\n')
    with pytest.raises(LabFileError, match=r"binary\.toml:2: not UTF-8"):
        load_lab(binary)
    huge = tmp_path / "huge.toml"
    huge.write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(LabFileError, match="no lab file"):
        load_lab(huge)


def test_a_secret_may_be_in_a_file_beside_the_labs(tmp_path: Path) -> None:
    (tmp_path / "lab.toml").write_text(
        'secret_file = "lab.key"\n[[node]]\nname = "a"\n'
        'nic = [{}, { secret_file = "own.key" }, { secret = "" }]\n'
    )
    (tmp_path / "lab.key").write_text("0f" * 32 + "\n")
    (tmp_path / "own.key").write_text("F0" * 32)
    lab = load_lab(tmp_path / "lab.toml")
    assert [nic.secret for nic in lab.nics] == [b"\x0f" * 32, b"\xf0" * 32, b""]
    assert "0f0f" not in repr(lab)
    assert "0f0f" not in repr(lab.nics)
    for octets, message in ((b"\xff", "does not hold hexadecimal"), (b"0f", "64 hexadecimal digits")):
        (tmp_path / "lab.key").write_bytes(octets)
        with pytest.raises(LabFileError, match=f"lab.toml:1: secret_file 'lab.key'.*{message}"):
            load_lab(tmp_path / "lab.toml")
