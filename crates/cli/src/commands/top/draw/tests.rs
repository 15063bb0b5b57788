//! Screens, drawn into memory.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::{Value, json};

use super::*;
use crate::commands::top::feed::{TopAnswer, TopNews, TopQuestion};
use crate::commands::top::state::Reaction;
use crate::commands::top::{ActivityWindow, KeyOrder, RuleOrder, once};

fn activity() -> Value {
    let series = |allowed: u64, denied: u64| {
        let ramp: Vec<u64> = (0..60).map(|second| second * denied / 30).collect();
        json!({"allowed": vec![allowed; 60], "denied": ramp, "shadow_denied": vec![0; 60],
               "delayed": vec![0; 60], "degraded": vec![0; 60], "cost": vec![allowed; 60]})
    };
    let rule = |id: &str, allowed, denied| {
        let mut rule = series(allowed, denied);
        rule["rule"] = json!(id);
        rule["unit"] = json!(if id == "login" { "requests" } else { "tokens" });
        rule
    };
    json!({
        "from": 1_794_769_940, "step": 1, "total": series(1_330, 45),
        "rules": [rule("per-ip", 1_200, 0), rule("per-user", 120, 40), rule("login", 10, 5)],
        "changes": [], "instances": [{"id": "a", "age": 0}, {"id": "b", "age": 3.5}],
    })
}

fn keys() -> Value {
    let key = |value: &str, denied: u64| {
        json!({"key": {"user_id": value}, "denied": denied, "used": 60,
        "lower": denied - denied / 100, "upper": denied, "last_seen": 1_794_769_998})
    };
    json!({"keys": [key("<img src=x onerror=alert(1)>", 12_345), key("\u{1b}[2J\u{202e}evil", 99),
                    key("u1", 7)], "distinct_denied": 4_321, "distinct_error": 0.016, "unit": "tokens", "instances": []})
}

fn wanted() -> TopQuestion {
    TopQuestion {
        window: ActivityWindow::Minute,
        sort: RuleOrder::Denied,
        keys: KeyOrder::Denied,
        rule: None,
    }
}

fn state() -> TopState {
    let fetched = TopAnswer::from_json(&activity(), "per-user", &keys());
    TopState::new("http://127.0.0.1:8080", wanted(), fetched)
}

fn screen(state: &TopState, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, state)).unwrap();
    terminal.backend().to_string()
}

fn press(state: &mut TopState, code: KeyCode) -> Reaction {
    state.on_key(KeyEvent::new(code, KeyModifiers::NONE))
}

#[test]
fn the_rules_and_the_top_keys_fit_a_small_terminal() {
    insta::assert_snapshot!(screen(&state(), 80, 24));
}

#[test]
fn a_rule_alone_has_the_whole_screen() {
    let mut state = state();
    assert_eq!(press(&mut state, KeyCode::Enter), Reaction::Ask);
    insta::assert_snapshot!(screen(&state, 100, 20));
    assert_eq!(press(&mut state, KeyCode::Esc), Reaction::Nothing);
    assert_eq!(state.page, TopPage::Rules);
}

#[test]
fn the_help_and_a_lost_server_are_shown() {
    let mut state = state();
    press(&mut state, KeyCode::Char('?'));
    state.update(TopNews::Lost("no server answers\u{1b}[2J".to_owned()));
    insta::assert_snapshot!(screen(&state, 80, 24));
    press(&mut state, KeyCode::Char('x'));
    assert!(!state.is_help);
    let fetched = TopAnswer::from_json(&activity(), "per-user", &keys());
    state.update(TopNews::Data(Box::new(fetched)));
    assert!(screen(&state, 80, 24).contains("live"));
}

#[test]
fn no_size_makes_it_panic() {
    let state = state();
    for (width, height) in [(1, 1), (10, 3), (30, 8), (79, 17), (300, 100)] {
        screen(&state, width, height);
    }
    let nothing = json!({"total": {}, "rules": []});
    let mut empty = TopState::new(
        "x",
        wanted(),
        TopAnswer::from_json(&nothing, "", &json!({})),
    );
    screen(&empty, 80, 24);
    for code in [KeyCode::Down, KeyCode::Enter, KeyCode::Char('s')] {
        press(&mut empty, code);
        screen(&empty, 80, 24);
    }
}

#[test]
fn what_clients_chose_reaches_no_terminal_unescaped() {
    let mut state = state();
    press(&mut state, KeyCode::Enter);
    for text in [
        screen(&state, 120, 24),
        once::rendered("x", &wanted(), &state.fetched),
    ] {
        let text = anstream::adapter::strip_str(&text).to_string();
        assert!(text.contains("<img src=x onerror=alert(1)>"), "{text}");
        assert!(text.contains("\\u{1b}[2J\\u{202e}evil"), "{text}");
        assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
    }
}

#[test]
fn keys_select_sort_and_choose_the_window() {
    let mut state = state();
    let rule = |state: &TopState| state.wanted.rule.clone().unwrap_or_default();
    press(&mut state, KeyCode::Down);
    assert_eq!(rule(&state), "login");
    press(&mut state, KeyCode::Char('G'));
    assert_eq!(rule(&state), "per-ip");
    press(&mut state, KeyCode::Char('j'));
    assert_eq!(rule(&state), "per-ip", "the last one");
    // The selected rule stays selected when the order changes.
    press(&mut state, KeyCode::Char('s'));
    assert_eq!(
        (state.wanted.sort, state.selected()),
        (RuleOrder::Allowed, Some(0))
    );
    assert_eq!(rule(&state), "per-ip");
    press(&mut state, KeyCode::Char('w'));
    assert_eq!(state.wanted.window, ActivityWindow::FiveMinutes);
    press(&mut state, KeyCode::Enter);
    press(&mut state, KeyCode::Char('s'));
    assert_eq!(state.wanted.keys, KeyOrder::Used);
    assert_eq!(press(&mut state, KeyCode::Char('q')), Reaction::Quit);
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(state.on_key(control_c), Reaction::Quit);
}

#[test]
fn the_plain_table_is_aligned() {
    let text = once::rendered("http://127.0.0.1:8080", &wanted(), &state().fetched);
    insta::assert_snapshot!(anstream::adapter::strip_str(&text));
}
