import pytest

from tests.support.demo import demo


@pytest.mark.parametrize(("last", "opened"), [("else", 0), ("same", 1)])
def test_a_difference_is_told(last: str, opened: int, capsys: pytest.CaptureFixture[str]) -> None:
    module = demo()
    recorded = ["same"] * len(module.ROWS)

    assert module.compare(recorded, recorded, 0)
    assert not module.compare(recorded, [*recorded[:-1], last], opened)
    assert capsys.readouterr().out.count("DIFFERENT") == 1
