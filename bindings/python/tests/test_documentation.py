"""Every public name has a docstring, with an example that runs."""

import doctest
import inspect

import pytest

import tidegate


def public_names():
    """Each public class and function, and what they have, with the objects that carry their documentation."""
    yield "tidegate", tidegate
    for name in tidegate.__all__:
        found = getattr(tidegate, name)
        if not inspect.isclass(found):
            continue
        yield name, found
        for member, value in vars(found).items():
            if member.startswith("_") or issubclass(found, (tuple, BaseException)) or found is tidegate.Outcome:
                continue
            yield f"{name}.{member}", value.__func__ if isinstance(value, (staticmethod, classmethod)) else value


@pytest.mark.parametrize(("name", "found"), public_names(), ids=[name for name, _ in public_names()])
def test_the_examples_of(name, found):
    text = inspect.getdoc(found)
    assert text and ">>>" in text, f"{name} has no example"
    test = doctest.DocTestParser().get_doctest(text, {}, name, None, 0)
    printed = []
    failed, tried = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=printed.append)
    assert tried and not failed, "".join(printed)


def test_the_examples_are_those_of_many_names():
    assert len(list(public_names())) > 60
