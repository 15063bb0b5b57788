//! Charts as SVG, each with a table of the same figures.

use tidegate::Timestamp;
use tidegate::rules::write_time;

use super::{escaped, grouped, share, table};

const WIDTH: u64 = 600;
const HEIGHT: u64 = 120;

/// What was allowed and denied over time.
pub(super) struct TimeChart<'c> {
    pub(super) title: &'c str,
    /// The beginning and the length of steps, in seconds.
    pub(super) from: u64,
    pub(super) step: u64,
    pub(super) allowed: Vec<u64>,
    pub(super) denied: Vec<u64>,
}

impl TimeChart<'_> {
    fn time(&self, index: usize) -> String {
        let seconds = self.from + self.step * index as u64;
        write_time(Timestamp::from_seconds(seconds))
    }

    pub(super) fn render(&self) -> String {
        let totals = self
            .allowed
            .iter()
            .zip(&self.denied)
            .map(|(allowed, denied)| allowed + denied);
        let most = totals.max().unwrap_or(0);
        let steps = self.allowed.len();
        if most == 0 {
            return "<p class=\"none\">No requests.</p>".to_owned();
        }
        let title = escaped(self.title);
        let mut out = format!(
            "<figure class=\"chart\"><figcaption>{title} <span class=\"readout\">up to {} requests in {} s</span></figcaption>\
             <svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{title}\" data-from=\"{}\" data-step=\"{}\">",
            grouped(most),
            self.step,
            self.from,
            self.step
        );
        let place = |value: u64| milli(value, most, HEIGHT);
        for index in 0..steps {
            let (allowed, denied) = (self.allowed[index], self.denied[index]);
            if allowed + denied == 0 {
                continue;
            }
            let (x, end) = (
                milli(index as u64, steps as u64, WIDTH),
                milli(index as u64 + 1, steps as u64, WIDTH),
            );
            let width = decimal(end - x);
            let (height_allowed, height_all) = (place(allowed), place(allowed + denied));
            let x = decimal(x);
            let bar = |class: &str, top: u64, height: u64| {
                format!(
                    "<rect class=\"{class}\" x=\"{x}\" y=\"{}\" width=\"{width}\" height=\"{}\"/>",
                    decimal(HEIGHT * 1_000 - top),
                    decimal(height)
                )
            };
            out.push_str(&format!(
                "<g data-i=\"{index}\" data-a=\"{allowed}\" data-d=\"{denied}\">"
            ));
            if allowed > 0 {
                out.push_str(&bar("allowed", height_allowed, height_allowed));
            }
            if denied > 0 {
                out.push_str(&bar("denied", height_all, height_all - height_allowed));
            }
            out.push_str("</g>");
        }
        out.push_str("</svg><div class=\"axis\"><span>");
        out.push_str(&self.time(0));
        out.push_str("</span><span>");
        out.push_str(&self.time(steps));
        out.push_str("</span></div><details><summary>Figures</summary>");
        let rows = (0..steps).filter(|index| self.allowed[*index] + self.denied[*index] > 0);
        out.push_str(&table(
            &["from", "allowed", "denied"],
            rows.map(|index| {
                vec![
                    self.time(index),
                    grouped(self.allowed[index]),
                    grouped(self.denied[index]),
                ]
            }),
        ));
        out.push_str("</details></figure>");
        out
    }
}

/// `value / of × size` in thousandths.
fn milli(value: u64, of: u64, size: u64) -> u64 {
    let scaled = u128::from(value) * u128::from(size) * 1_000 / u128::from(of.max(1));
    u64::try_from(scaled).unwrap_or(0)
}

/// Thousandths as a decimal number.
fn decimal(milli: u64) -> String {
    format!("{}.{:03}", milli / 1_000, milli % 1_000)
}

/// The shares that are denied with multiplied limits: the factor, what is denied, of how many, and clients.
pub(super) fn scale_chart(title: &str, rows: &[(String, u64, u64, Option<u64>)]) -> String {
    if rows.len() < 2 || rows.iter().all(|(_, _, of, _)| *of == 0) {
        return String::new();
    }
    let most = rows
        .iter()
        .map(|(_, denied, _, _)| *denied)
        .max()
        .unwrap_or(0)
        .max(1);
    let height = 22 * rows.len();
    let title = escaped(title);
    let mut out = format!(
        "<figure class=\"scale\"><figcaption>{title}</figcaption><svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">"
    );
    for (index, (factor, denied, of, _)) in rows.iter().enumerate() {
        let y = 22 * index;
        let width = decimal(milli(*denied, most, 420));
        out.push_str(&format!(
            "<text x=\"40\" y=\"{}\" class=\"end\">×{}</text><rect class=\"denied\" x=\"50\" y=\"{}\" width=\"{width}\" height=\"14\"/>\
             <text x=\"480\" y=\"{}\">{}</text>",
            y + 15, escaped(factor), y + 4, y + 15, share(*denied, *of)
        ));
    }
    out.push_str("</svg><details><summary>Figures</summary>");
    let cells = |(factor, denied, of, clients): &(String, u64, u64, Option<u64>)| {
        let clients = clients.map_or_else(|| "–".to_owned(), grouped);
        vec![
            format!("×{}", escaped(factor)),
            grouped(of - denied),
            grouped(*denied),
            share(*denied, *of),
            clients,
        ]
    };
    out.push_str(&table(
        &["limits", "allowed", "denied", "share", "clients denied"],
        rows.iter().map(cells),
    ));
    out.push_str("</details></figure>");
    out
}
