//! Takes the terminal, and gives it back: at the end, after an error or a panic, and when a signal ends the process.

use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use anstream::{AutoStream, ColorChoice};
use anyhow::Context as _;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use tokio::signal::unix::{SignalKind, signal};

use super::draw::draw;
use super::feed::{self, SharedQuestion, TopNews};
use super::state::{Reaction, TopState};
use crate::client::ApiClient;

/// How long a key may wait for the screen, and news for a key.
const TICK: Duration = Duration::from_millis(100);
/// How often ages are drawn again when there is no news, in ticks.
const REDRAW: u32 = 10;

/// Shows the state until the user quits.
pub(super) fn show(client: ApiClient, mut state: TopState) -> anyhow::Result<()> {
    state.has_colour = AutoStream::choice(&io::stdout()) != ColorChoice::Never;
    let (sender, updates) = mpsc::channel();
    let question = SharedQuestion::new(state.wanted.clone());
    stop_on_signal(sender.clone()).context("cannot watch for signals")?;
    let asked = question.clone();
    thread::spawn(move || feed::keep_asking(&client, &asked, &sender));
    // Also sets a panic hook that gives the terminal back.
    let shown = ratatui::try_init()
        .and_then(|mut terminal| follow(&mut terminal, &mut state, &question, &updates));
    ratatui::restore();
    shown.context("cannot use this terminal; --once prints text")
}

fn follow(
    terminal: &mut DefaultTerminal,
    state: &mut TopState,
    question: &SharedQuestion,
    updates: &Receiver<TopNews>,
) -> io::Result<()> {
    let mut ticks = REDRAW;
    loop {
        if ticks >= REDRAW {
            terminal.draw(|frame| draw(frame, state))?;
            ticks = 0;
        }
        ticks += 1;
        if event::poll(TICK)? {
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => match state.on_key(key) {
                    Reaction::Quit => return Ok(()),
                    Reaction::Ask => question.change(&state.wanted),
                    Reaction::Nothing => {}
                },
                _ => {}
            }
            // After a resize, too.
            ticks = REDRAW;
        }
        while let Ok(update) = updates.try_recv() {
            if state.update(update) {
                return Ok(());
            }
            ticks = REDRAW;
        }
    }
}

/// Sends [`TopNews::Stop`] when a signal asks the process to end, so that the terminal is given back first.
fn stop_on_signal(stop: Sender<TopNews>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    thread::spawn(move || {
        let waiting = async {
            let mut end = signal(SignalKind::terminate())?;
            let mut hang_up = signal(SignalKind::hangup())?;
            tokio::select! {
                _ = end.recv() => {}
                _ = hang_up.recv() => {}
            }
            io::Result::Ok(())
        };
        if runtime.block_on(waiting).is_ok() {
            // Without a receiver, the screen is gone already.
            let _ = stop.send(TopNews::Stop);
        }
    });
    Ok(())
}
