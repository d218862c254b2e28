"""`tbench report` of a night."""

from pathlib import Path

from support.nights import make_night


def test_a_night_whose_config_is_broken_is_named_as_such(tmp_path: Path, tbench) -> None:
    night = make_night(tmp_path / "night", [{"p": {"a": "+"}}])
    night.folder.gate_json.write_text("{}")
    night.folder.config_json.write_text('{"run_id": "x')
    ran = tbench("report", night.folder.folder)
    assert ran.code == 2
    assert str(night.folder.config_json) in ran.err


def test_the_report_of_a_night_is_written_into_its_folder(tmp_path: Path, tbench) -> None:
    night = make_night(tmp_path / "night", [{"p": {"a": "+"}}])
    ran = tbench("report", night.folder.folder)
    assert ran.code == 0, ran.err
    assert "\nRan: finished; 1 of 1 iterations; 1 of 1 trial measured, 1 passed; cost unknown\n" in ran.out
    assert night.folder.report_html.read_text().startswith("<!doctype html>")
    before = night.folder.report_md.read_bytes()
    night.folder.report_md.unlink()
    assert tbench("report", night.folder.folder).code == 0
    assert night.folder.report_md.read_bytes() == before
    assert tbench("report", night.folder.folder, "-o", tmp_path / "out").code == 2
