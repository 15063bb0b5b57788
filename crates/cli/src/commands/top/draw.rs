//! Draws the state. Everything that clients chose is escaped before it gets here.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Table, TableState};
use tidegate::printable::escaped;
use tidegate::{Clock as _, SystemClock};

use super::Choice as _;
use super::activity::{ShownKey, ShownKeys, ShownRule, rate_text};
use super::state::{TopPage, TopState};
use crate::output::{counted, grouped};
use crate::times::{self, whole_seconds};

/// The height from which the keys of the selected rule are shown below the rules.
const TALL: u16 = 18;
/// The width of a column of numbers.
const NUMBER: u16 = 10;
/// The width of a rule's line of bars.
const BARS: u16 = 12;
/// An instance whose report is older than this, in seconds, is pointed out.
const OLD: f64 = 15.0;

const HELP: &[(&str, &str)] = &[
    ("up, down, k, j", "select a rule"),
    ("enter", "show only the selected rule"),
    ("esc", "back to all rules"),
    ("s", "sort by the next column"),
    ("w", "next window: 1m, 5m, 1h, 24h"),
    ("q", "quit"),
];

/// Draws the whole screen.
pub(super) fn draw(frame: &mut Frame<'_>, state: &TopState) {
    let area = frame.area();
    let [head, total, body, foot] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(3),
        Constraint::Min(1),
        Constraint::Length(1),
    ])
    .areas(area);
    draw_head(frame, state, head);
    draw_total(frame, state, total);
    match state.page {
        TopPage::Rules if area.height >= TALL => {
            let parts = [Constraint::Fill(3), Constraint::Fill(2)];
            let [rules, keys] = Layout::vertical(parts).areas(body);
            draw_rules(frame, state, rules);
            draw_keys(frame, state, keys);
        }
        TopPage::Rules => draw_rules(frame, state, body),
        TopPage::Keys => draw_keys(frame, state, body),
    }
    let keys = match state.page {
        TopPage::Rules => " ↑↓ select  enter keys  s sort  w window  ? help  q quit",
        TopPage::Keys => " ↑↓ rule  esc back  s sort  w window  ? help  q quit",
    };
    let foot_line = Line::styled(keys, Style::new().add_modifier(Modifier::DIM));
    frame.render_widget(foot_line, foot);
    if state.is_help {
        draw_help(frame, area);
    }
}

impl TopState {
    /// A colour, if there is to be any.
    fn colour(&self, colour: Color) -> Style {
        if self.has_colour {
            Style::new().fg(colour)
        } else {
            Style::new()
        }
    }
}

/// The title line: what is shown, and whether it is up to date.
fn draw_head(frame: &mut Frame<'_>, state: &TopState, area: Rect) {
    let activity = &state.fetched.activity;
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let sort = match state.page {
        TopPage::Rules => state.wanted.sort.name(),
        TopPage::Keys => state.wanted.keys.name(),
    };
    let about = format!(
        "  window {}  sort {sort}  {}",
        state.wanted.window.name(),
        counted(activity.ages.len().max(1), "instance"),
    );
    let first = Line::from(vec![
        Span::styled(format!(" tidegate {}", escaped(&state.server)), bold),
        Span::raw(about),
    ]);
    let oldest = activity.ages.iter().copied().fold(0.0, f64::max);
    let second = if let Some((since, problem)) = &state.lost {
        let text = format!(
            " no answer for {}: {}",
            times::length(whole_seconds(SystemClock.now().since(*since))),
            escaped(problem)
        );
        let style = state.colour(Color::Red).add_modifier(Modifier::BOLD);
        Line::styled(text, style)
    } else if oldest > OLD {
        let text = format!(" the report of an instance is {oldest:.0}s old");
        Line::styled(text, state.colour(Color::Yellow))
    } else {
        let change = activity.last_change.as_ref();
        let change = change.map(|change| format!("  changed: {change}"));
        Line::from(vec![
            Span::styled(" live", state.colour(Color::Green)),
            Span::styled(change.unwrap_or_default(), state.colour(Color::Yellow)),
        ])
    };
    frame.render_widget(Text::from(vec![first, second]), area);
}

/// The rates of all rules together.
fn draw_total(frame: &mut Frame<'_>, state: &TopState, area: Rect) {
    let activity = &state.fetched.activity;
    let outcomes = match (state.page, state.selected()) {
        (TopPage::Keys, Some(index)) => &state.rules()[index].outcomes,
        _ => &activity.total,
    };
    let width = usize::from(area.width.saturating_sub(24));
    let line = |name: &str, counts: &[u64], colour: Color| {
        let rate = rate_text(activity.rate(counts));
        Line::from(vec![
            Span::raw(format!(" {name:<9}{rate:>9}/s  ")),
            Span::styled(activity.bars(counts, width), state.colour(colour)),
        ])
    };
    let lines = vec![
        line("allowed", &outcomes.allowed, Color::Green),
        line("denied", &outcomes.denied, Color::Red),
        line("degraded", &outcomes.degraded, Color::Yellow),
    ];
    frame.render_widget(Text::from(lines), area);
}

fn draw_rules(frame: &mut Frame<'_>, state: &TopState, area: Rect) {
    let activity = &state.fetched.activity;
    let has_candidates = activity.has_candidates();
    let row = |rule: &&ShownRule| {
        let outcomes = &rule.outcomes;
        let number = |counts: &[u64]| right(rate_text(activity.rate(counts)));
        let denied = if outcomes.denied.iter().any(|count| *count > 0) {
            state.colour(Color::Red)
        } else {
            Style::new()
        };
        let tried = has_candidates.then(|| number(&outcomes.candidate_denied));
        let numbers = [
            number(&outcomes.allowed),
            number(&outcomes.denied).style(denied),
            number(&outcomes.shadow_denied),
            number(&outcomes.degraded),
        ];
        let name = Cell::from(escaped(&rule.rule).into_owned());
        let bars = activity.bars(&outcomes.denied, usize::from(BARS));
        let bars = Cell::from(bars).style(denied);
        let cells = std::iter::once(name).chain(numbers).chain(tried);
        Row::new(cells.chain([bars]))
    };
    let headings = ["ALLOWED/S", "DENIED/S", "SHADOW/S", "DEGRADED/S"];
    let headings = headings
        .into_iter()
        .chain(has_candidates.then_some("CANDIDATE/S"));
    let numbers = headings.map(|heading| right(heading.to_owned()));
    let header = [Cell::from("RULE")].into_iter().chain(numbers);
    let header = header.chain([Cell::from("DENIED")]);
    let rules = state.rules();
    let mut title = counted(rules.len(), "rule");
    if activity.left_out > 0 {
        let all = rules.len() as u64 + activity.left_out;
        title = format!("{} of {all} rules", rules.len());
    }
    let number = Constraint::Length(NUMBER);
    let numbers = std::iter::repeat_n(number, 4 + usize::from(has_candidates));
    let widths = std::iter::once(Constraint::Min(12)).chain(numbers);
    let widths = widths.chain([Constraint::Length(BARS)]);
    let table = Table::new(rules.iter().map(row), widths)
        .header(Row::new(header).style(Style::new().add_modifier(Modifier::BOLD)))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .block(titled(&title));
    let mut selection = TableState::new().with_selected(state.selected());
    frame.render_stateful_widget(table, area, &mut selection);
}

/// The top keys of the selected rule, with their bounds.
fn draw_keys(frame: &mut Frame<'_>, state: &TopState, area: Rect) {
    let fetched = &state.fetched;
    let selected = state
        .selected()
        .map(|index| state.rules()[index].rule.clone());
    let Some(rule) = selected.or_else(|| fetched.rule.clone()) else {
        frame.render_widget(titled("no rules"), area);
        return;
    };
    let (sort, window) = (state.wanted.keys.name(), state.wanted.window.of_keys());
    let mut title = format!("top keys of {} by {sort}, {window}", escaped(&rule));
    // The keys of another rule are not shown under this name.
    let keys = fetched
        .keys
        .as_ref()
        .filter(|_| fetched.rule.as_ref() == Some(&rule));
    title.extend(keys.map(ShownKeys::about));
    let row = |key: &ShownKey| {
        let seen = key.last_seen.map(|at| ago(fetched.activity.until - at));
        Row::new(vec![
            Cell::from(key.text.clone()),
            right(grouped(key.denied)),
            right(grouped(key.used)),
            right(bounds(key)),
            right(seen.unwrap_or_default()),
        ])
    };
    let headings = ["DENIED", "USED", "BOUNDS", "SEEN"];
    let numbers = headings.map(|heading| right(heading.to_owned()));
    let header = [Cell::from("KEY")].into_iter().chain(numbers);
    let widths = [
        Constraint::Min(20),
        Constraint::Length(NUMBER),
        Constraint::Length(NUMBER),
        Constraint::Length(17),
        Constraint::Length(8),
    ];
    let rows = keys.map_or(&[][..], |keys| &keys.keys).iter().map(row);
    let table = Table::new(rows, widths)
        .header(Row::new(header).style(Style::new().add_modifier(Modifier::BOLD)))
        .block(titled(&title));
    frame.render_widget(table, area);
}

/// The bounds of the count that keys are sorted by; one number if they are equal.
fn bounds(key: &ShownKey) -> String {
    if key.lower == key.upper {
        return grouped(key.lower);
    }
    format!("{}-{}", grouped(key.lower), grouped(key.upper))
}

/// A span of seconds as people say it: `now`, `12s`, `3m`.
pub(super) fn ago(seconds: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a cast from float saturates"
    )]
    let seconds = seconds.max(0.0) as u64;
    match seconds {
        0 | 1 => "now".to_owned(),
        2..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        _ => format!("{}h", seconds / 3_600),
    }
}

fn right(text: String) -> Cell<'static> {
    Cell::from(Text::from(text).alignment(Alignment::Right))
}

fn titled(title: &str) -> Block<'static> {
    Block::new()
        .borders(ratatui::widgets::Borders::TOP)
        .border_style(Style::new().add_modifier(Modifier::DIM))
        .title(format!(" {title} "))
}

/// The keys, over the middle of the screen.
fn draw_help(frame: &mut Frame<'_>, area: Rect) {
    let lines = HELP
        .iter()
        .map(|(key, what)| Line::from(format!(" {key:<16}{what} ")));
    let lines: Vec<Line<'_>> = lines.collect();
    let height = u16::try_from(lines.len())
        .unwrap_or(u16::MAX)
        .saturating_add(2);
    let [area] = Layout::horizontal([Constraint::Length(50)])
        .flex(ratatui::layout::Flex::Center)
        .areas(area);
    let [area] = Layout::vertical([Constraint::Length(height)])
        .flex(ratatui::layout::Flex::Center)
        .areas(area);
    frame.render_widget(Clear, area);
    let help = Paragraph::new(lines).block(Block::bordered().title(" keys "));
    frame.render_widget(help, area);
}

#[cfg(test)]
mod tests;
