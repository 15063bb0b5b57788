"""Figures as text, and what a row of the results says in comparison with Tidegate."""

from .rounds import median


def values(row, name):
    return [turn[name] for turn in row["turns"] if turn.get(name) is not None]


def middle(row, name):
    found = values(row, name)
    return median(found) if found else None


def digits(value):
    """Three digits, with commas."""
    if value is None:
        return "–"
    if value >= 100:
        rounded = float(f"{value:.3g}") if value < 1000 else round(value)
        return f"{rounded:,.0f}"
    return f"{value:.3g}" if value >= 1 else f"{value:.2g}"


def duration(micros):
    """Microseconds in the unit that reads best."""
    if micros is None:
        return "–"
    if micros < 1:
        return f"{digits(micros * 1000)} ns"
    if micros >= 1000:
        return f"{digits(micros / 1000)} ms"
    return f"{digits(micros)} µs"


def spread(row, name, text=duration):
    """The median, and the least and the most of all rounds."""
    found = values(row, name)
    if not found:
        return "–"
    if len(found) == 1:
        return text(found[0])
    return f"{text(median(found))} ({text(min(found))} – {text(max(found))})"


def rate(value):
    if value is None:
        return "–"
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{digits(value / size)} {unit}"
    return digits(value)


def ratio(ours, theirs, name):
    """The median over the rounds of what Tidegate costs as a multiple of the other."""
    pairs = list(zip(values(ours, name), values(theirs, name)))
    return median([our / their for our, their in pairs]) if pairs and all(their for _, their in pairs) else None


def is_even(times):
    return 0.97 <= times <= 1.03


def verdict(ours, theirs, name):
    """How Tidegate compares with a row, in words."""
    if theirs is ours or theirs["role"] == "tidegate":
        return ""
    times = ratio(ours, theirs, name) if ours else None
    if times is None:
        return "–"
    if theirs["role"] == "ceiling":
        return f"{times:.2f} times this ceiling"
    if is_even(times):
        return "even"
    if times > 1:
        return f"**behind: {times:.2f} times** {theirs['contender'].split(',')[0]}"
    return f"ahead: {times:.2f} times"
