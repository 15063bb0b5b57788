from tidegate import Limit


def test_a_limit_is_parsed():
    assert repr(Limit("100/minute burst 20")) == "Limit('100/minute burst 20')"
