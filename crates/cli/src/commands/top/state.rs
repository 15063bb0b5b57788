//! The state of the screen, and how keys change it.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use tidegate::{Clock as _, SystemClock, Timestamp};

use super::Choice as _;
use super::activity::ShownRule;
use super::feed::{TopAnswer, TopNews, TopQuestion};

/// The pages, apart from the help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TopPage {
    /// All rules, and the top keys of the selected one.
    Rules,
    /// One rule and its top keys.
    Keys,
}

/// The reaction to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reaction {
    Nothing,
    /// Other data is wanted.
    Ask,
    Quit,
}

/// The state of the screen.
pub(super) struct TopState {
    pub(super) server: String,
    pub(super) wanted: TopQuestion,
    pub(super) fetched: TopAnswer,
    /// Since when the server does not answer, and why.
    pub(super) lost: Option<(Timestamp, String)>,
    pub(super) page: TopPage,
    pub(super) is_help: bool,
    pub(super) has_colour: bool,
}

impl TopState {
    pub(super) fn new(server: &str, wanted: TopQuestion, fetched: TopAnswer) -> Self {
        Self {
            server: server.to_owned(),
            wanted,
            fetched,
            lost: None,
            page: TopPage::Rules,
            is_help: false,
            has_colour: true,
        }
    }

    /// The rules as they are shown.
    pub(super) fn rules(&self) -> Vec<&ShownRule> {
        self.fetched.activity.sorted(self.wanted.sort)
    }

    /// The index of the selected rule.
    pub(super) fn selected(&self) -> Option<usize> {
        let rules = self.rules();
        let wanted = self.wanted.rule.as_ref();
        let index = wanted.and_then(|id| rules.iter().position(|rule| rule.rule == *id));
        index.or_else(|| (!rules.is_empty()).then_some(0))
    }

    /// Takes news of the server. Returns whether the screen is to end.
    pub(super) fn update(&mut self, update: TopNews) -> bool {
        match update {
            TopNews::Data(fetched) => {
                self.fetched = *fetched;
                self.lost = None;
            }
            TopNews::Lost(problem) => {
                let since = self.lost.take().map(|(since, _)| since);
                self.lost = Some((since.unwrap_or_else(|| SystemClock.now()), problem));
            }
            TopNews::Stop => return true,
        }
        false
    }

    pub(super) fn on_key(&mut self, key: KeyEvent) -> Reaction {
        let before = self.wanted.clone();
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return Reaction::Quit;
        }
        match key.code {
            KeyCode::Char('q') => return Reaction::Quit,
            // Any other key closes the help.
            _ if self.is_help => self.is_help = false,
            KeyCode::Char('?' | 'h') => self.is_help = true,
            KeyCode::Up | KeyCode::Char('k') => self.select(|at, _| at.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.select(|at, last| (at + 1).min(last)),
            KeyCode::PageUp => self.select(|at, _| at.saturating_sub(10)),
            KeyCode::PageDown => self.select(|at, last| (at + 10).min(last)),
            KeyCode::Home | KeyCode::Char('g') => self.select(|_, _| 0),
            KeyCode::End | KeyCode::Char('G') => self.select(|_, last| last),
            KeyCode::Char('w') => self.wanted.window = self.wanted.window.next(),
            KeyCode::Char('s') => match self.page {
                TopPage::Rules => self.sort_rules(),
                TopPage::Keys => self.wanted.keys = self.wanted.keys.next(),
            },
            KeyCode::Enter => {
                self.select(|at, _| at);
                self.page = TopPage::Keys;
            }
            KeyCode::Esc => self.page = TopPage::Rules,
            _ => {}
        }
        if self.wanted == before {
            Reaction::Nothing
        } else {
            Reaction::Ask
        }
    }

    /// Selects another rule: `to` gets the current and the last index.
    fn select(&mut self, to: impl Fn(usize, usize) -> usize) {
        let rules = self.rules();
        if let (Some(at), Some(last)) = (self.selected(), rules.len().checked_sub(1)) {
            let rule = rules.get(to(at, last)).map(|rule| rule.rule.clone());
            self.wanted.rule = rule;
        }
    }

    /// Sorts the rules by the next column. The selected rule stays selected.
    fn sort_rules(&mut self) {
        self.select(|at, _| at);
        self.wanted.sort = self.wanted.sort.next();
    }
}
