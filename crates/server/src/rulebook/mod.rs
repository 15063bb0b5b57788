//! The rule book: where the rules come from, which version is in force, and how it changes.
//!
//! Rules come from one source: a watched file or folder (`file.rs`), a management server (`xds/`), the data directory, or
//! the Redis that servers share (`shared.rs`). The API changes the latter two (`change.rs`). In each case a change is
//! atomic, and the gate gets it immediately. `overlay.rs` changes how limits are counted.
//! `kept.rs` reads earlier versions, `diff.rs` compares them. `last_good.rs` keeps rules of others for the next
//! start, `kept_files.rs` those of files.

mod change;
mod diff;
mod file;
mod folder;
mod kept;
mod kept_files;
mod last_good;
mod loads;
pub(crate) mod overlay;
mod report;
mod shared;
mod xds;

pub use change::{ChangeError, Changed, Expected, Preview, RuleChange};
pub use diff::{MAX_TEXT, RuleDiff, TooMuchText, id_of, unified, unified_sets};
pub use file::LoadError;
pub use folder::RuleFolder;
pub use kept::{KeptRules, VersionError};
pub(crate) use last_good::LastGoodStores;
pub(crate) use report::NO_RULES;
pub use shared::Followed;
pub(crate) use xds::TakenResponse;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use serde::Deserialize as _;
use serde_json::Value;
use tidegate::document::{Node, Problems};
use tidegate::rules::{Rule, RuleSet, RuleSettings};
use tidegate::{Clock, Gate, SystemClock, Timestamp};

use crate::config::RulePath;
use crate::data_dir::{DataDir, DataDirError, Row, checksum};
pub use crate::shared_document::{FollowError, SharedChangeError};
use file::RuleTexts;
use kept::KeptVersions;
use last_good::LastGood;
use loads::Loads;
use tokio::sync::watch;

/// Why a server does not decide whose management server has not answered yet. envoyproxy/ratelimit says the same.
const NOT_LOADED: &str = "no rate limit configuration loaded";

/// Where the rules come from, and which version is in force.
pub struct RuleBook {
    origin: Origin,
    settings: RuleSettings,
    /// Held while the rules are changed or followed, one after the other.
    changing: tokio::sync::Mutex<()>,
    /// Held while rules of a management server are put in force.
    putting: Mutex<()>,
    /// Changed before the rules of the gate, whose observer asks for it.
    version: AtomicU64,
    /// Whether the rules are known.
    has_rules: AtomicBool,
    /// The problem of the source when it was last read, if it had one.
    problem: RwLock<Option<String>>,
    /// The problem of the overlay when it was last read, if it had one.
    overlay_problem: RwLock<Option<String>>,
    reloads: AtomicU64,
    reload_failures: AtomicU64,
    loads: Loads,
    /// The last good rules, to be kept.
    last_good: watch::Sender<Option<Arc<LastGood>>>,
}

enum Origin {
    File(RuleFile),
    Xds(xds::XdsRules),
    DataDir(Arc<DataDir>),
    Shared(shared::SharedRules),
}

/// A file, and its versions since the start.
struct RuleFile {
    rules: RulePath,
    versions: Mutex<KeptVersions>,
    /// Held while the file is read and its rules put in force.
    reloading: Mutex<()>,
}

/// Why the server has no rules to start with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The file cannot be used.
    #[error(transparent)]
    File(#[from] LoadError),
    /// The data directory cannot be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The data directory holds versions, all of them damaged.
    #[error("every version of the rules in `{}` is damaged: {damage}; restore a good one, or move the directory away to start without rules", path.display())]
    AllDamaged {
        /// The data directory.
        path: PathBuf,
        /// What is wrong with them.
        damage: String,
    },
    /// The current version is invalid.
    #[error(
        "version {version} of the rules in the data directory cannot be used by this program: {problems}"
    )]
    Unusable {
        /// Which version.
        version: u64,
        /// What is wrong with it.
        problems: String,
    },
}

impl RuleBook {
    /// The rules of a file or a folder, and warnings about them. If they cannot be used and the path is lenient, the
    /// rules are unknown until they can.
    pub fn of_file(
        path: RulePath,
        settings: RuleSettings,
    ) -> Result<(Self, RuleSet, Problems), OpenError> {
        let loaded = match load(&path, &settings) {
            Err(error) if !path.is_lenient => return Err(error.into()),
            loaded => loaded,
        };
        let file = RuleFile {
            rules: path,
            versions: Mutex::default(),
            reloading: Mutex::new(()),
        };
        let kind = file.kind();
        let book = Self::new(Origin::File(file), settings, u64::from(loaded.is_ok()));
        book.loads.count(loaded.is_ok());
        let rules = match loaded {
            Ok((texts, rules)) => {
                book.begin_with(kind, &rules, now());
                book.keep_files(&texts);
                rules
            }
            Err(error) => {
                tracing::error!("{}", error.logged());
                *book.problem.write() = Some(error.brief());
                book.has_rules.store(false, Ordering::Release);
                RuleSet::empty()
            }
        };
        let problems = rules.warnings().clone();
        Ok((book, rules, problems))
    }

    /// Notes the first version of rules of a file.
    fn begin_with(&self, kind: &str, rules: &RuleSet, at: Timestamp) {
        if let Some(file) = self.rule_file() {
            let changes = change::between(&RuleSet::empty(), rules);
            let row = Row {
                at,
                ..row(1, kind.to_owned(), changes)
            };
            file.versions.lock().push(row, &rules.written());
        }
    }

    /// Asks for the rules in force to be kept.
    fn keep(&self, last_good: LastGood) {
        self.last_good.send_replace(Some(Arc::new(last_good)));
    }

    /// The last good rules, each time that they change.
    pub(crate) fn last_good(&self) -> watch::Receiver<Option<Arc<LastGood>>> {
        self.last_good.subscribe()
    }

    /// The rules of a data directory, and warnings about them.
    pub fn of_data_dir(
        data_dir: DataDir,
        path: PathBuf,
        settings: RuleSettings,
    ) -> Result<(Self, RuleSet, Problems), OpenError> {
        let data_dir = Arc::new(data_dir);
        let Some(current) = data_dir.current() else {
            let damage: Vec<String> = data_dir
                .warnings()
                .iter()
                .map(ToString::to_string)
                .collect();
            if !damage.is_empty() {
                return Err(OpenError::AllDamaged {
                    path,
                    damage: damage.join("; "),
                });
            }
            let book = Self::new(Origin::DataDir(data_dir), settings, 0);
            return Ok((book, RuleSet::empty(), Problems::new()));
        };
        let version = current.version;
        let rules = read_list(&current.rules, &settings).map_err(|problems| {
            let errors: Vec<String> = problems.errors().map(ToString::to_string).collect();
            OpenError::Unusable {
                version,
                problems: errors.join("; "),
            }
        })?;
        let problems = rules.warnings().clone();
        Ok((
            Self::new(Origin::DataDir(data_dir), settings, version),
            rules,
            problems,
        ))
    }

    fn new(origin: Origin, settings: RuleSettings, version: u64) -> Self {
        Self {
            origin,
            settings,
            changing: tokio::sync::Mutex::new(()),
            putting: Mutex::new(()),
            version: AtomicU64::new(version),
            has_rules: AtomicBool::new(true),
            problem: RwLock::new(None),
            overlay_problem: RwLock::new(None),
            reloads: AtomicU64::new(0),
            reload_failures: AtomicU64::new(0),
            loads: Loads::default(),
            last_good: watch::Sender::new(None),
        }
    }

    fn rule_file(&self) -> Option<&RuleFile> {
        match &self.origin {
            Origin::File(file) => Some(file),
            _ => None,
        }
    }

    fn shared(&self) -> Option<&shared::SharedRules> {
        match &self.origin {
            Origin::Shared(shared) => Some(shared),
            _ => None,
        }
    }

    /// The file that the rules come from, if they come from one.
    pub fn file(&self) -> Option<&PathBuf> {
        self.rule_file().map(|file| &file.rules.path)
    }

    /// Where the rules come from, in words.
    pub fn source(&self) -> &'static str {
        match &self.origin {
            Origin::File(file) => file.kind(),
            Origin::Xds(_) => "xds",
            Origin::DataDir(_) => "data directory",
            Origin::Shared(_) => "redis",
        }
    }

    /// Whether the rules are this server's own, to be changed here.
    pub(crate) fn is_own(&self) -> bool {
        matches!(self.origin, Origin::DataDir(_))
    }

    /// Whether the rules are shared with other servers.
    pub fn is_shared(&self) -> bool {
        self.shared().is_some()
    }

    /// Whether the rules are known. False for a server that has never reached Redis and has no stored rules: then
    /// it must not treat every request as unlimited.
    pub fn has_rules(&self) -> bool {
        self.has_rules.load(Ordering::Acquire)
    }

    /// An error if the rules are not known yet.
    pub fn need_rules(&self) -> Result<(), String> {
        if self.has_rules() {
            return Ok(());
        }
        if self.xds().is_some() || self.rule_file().is_some() {
            return Err(NOT_LOADED.to_owned());
        }
        let problem = self.problem();
        let problem = problem.as_deref().unwrap_or("they were not read yet");
        Err(format!("the rules are not known: {problem}"))
    }

    /// Settings that rules are read with.
    pub fn settings(&self) -> &RuleSettings {
        &self.settings
    }

    /// The version in force; zero before the first.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The problem of the source when it was last read, if the rules in force may be older.
    pub fn problem(&self) -> Option<String> {
        let of_rules = self.problem.read().clone();
        of_rules.or_else(|| self.overlay_problem.read().clone())
    }

    /// How often rules were loaded from a file or a management server, with the first time and also unchanged ones, and
    /// how often that failed.
    pub fn loads(&self) -> (u64, u64) {
        self.loads.get()
    }

    /// How often the source was read since the start, and how often that failed.
    pub fn reloads(&self) -> (u64, u64) {
        (
            self.reloads.load(Ordering::Relaxed),
            self.reload_failures.load(Ordering::Relaxed),
        )
    }

    fn next_version(&self) -> u64 {
        self.version.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Reads the file again and puts its rules in force, if all of them are good. Blocks.
    ///
    /// Unless rules `may_go`, a file that lacks some of those in force changes nothing: it may be half
    /// written.
    pub fn reload(&self, gate: &Gate, may_go: bool) -> Result<Reloaded, LoadError> {
        let Some(file) = self.rule_file() else {
            return Ok(Reloaded::NothingToRead);
        };
        let _reloading = file.reloading.lock();
        let loaded = load(&file.rules, &self.settings);
        let removed = match &loaded {
            Ok((_, rules)) => missing_in(rules, &gate.rules()),
            Err(_) => Vec::new(),
        };
        if !removed.is_empty() && !may_go {
            return Ok(Reloaded::Held { removed });
        }
        self.reloads.fetch_add(1, Ordering::Relaxed);
        let (texts, rules) = match loaded {
            Ok(loaded) => loaded,
            Err(error) => {
                self.reload_failures.fetch_add(1, Ordering::Relaxed);
                self.loads.count(false);
                *self.problem.write() = Some(error.brief());
                return Err(error);
            }
        };
        self.loads.count(true);
        let was_stale = self.problem.write().take().is_some();
        let changes = change::between(&gate.rules(), &rules);
        if changes.is_empty() && self.has_rules() {
            return Ok(Reloaded::Unchanged { was_stale });
        }
        let (written, problems) = (rules.written(), rules.warnings().clone());
        let version = self.next_version();
        gate.replace_rules(rules);
        self.has_rules.store(true, Ordering::Release);
        self.keep_files(&texts);
        let row = row(version, file.kind().to_owned(), changes.clone());
        file.versions.lock().push(row, &written);
        Ok(Reloaded::Changed {
            version,
            changes,
            removed,
            problems,
        })
    }
}

impl RuleFile {
    /// What it is, in a word.
    fn kind(&self) -> &'static str {
        if self.rules.is_lenient || self.rules.path.is_dir() {
            "folder"
        } else {
            "file"
        }
    }
}

/// Reads the rules of a file or a folder as a start does. Returns why they cannot be used, if a server would start all
/// the same.
pub(crate) fn check(
    rules: &RulePath,
    settings: &RuleSettings,
) -> Result<Option<LoadError>, LoadError> {
    match load(rules, settings) {
        Ok(_) => Ok(None),
        Err(error) if rules.is_lenient => Ok(Some(error)),
        Err(error) => Err(error),
    }
}

/// The texts of a file or a folder, with their rules.
fn load(rules: &RulePath, settings: &RuleSettings) -> Result<(RuleTexts, RuleSet), LoadError> {
    let texts = RuleTexts::read(rules)?;
    let read = texts.rules(rules, settings)?;
    Ok((texts, read))
}

/// The row of a version that is put in force now.
fn row(version: u64, by: String, changes: Vec<String>) -> Row {
    Row {
        version,
        at: now(),
        by,
        changes,
    }
}

/// The rules of `before` that are not in `after`, by their ids.
fn missing_in(after: &RuleSet, before: &RuleSet) -> Vec<String> {
    let gone = before.iter().filter(|rule| after.get(rule.id()).is_none());
    gone.map(|rule| rule.id().to_owned()).collect()
}

/// The result of reloading the file.
#[derive(Debug)]
pub enum Reloaded {
    /// The rules are the same as before.
    Unchanged {
        /// Whether the file was unusable in between.
        was_stale: bool,
    },
    /// The rules differ, and are in force now.
    Changed {
        /// The new version.
        version: u64,
        /// The differences.
        changes: Vec<String>,
        /// The removed rules.
        removed: Vec<String>,
        /// Warnings about the rules.
        problems: Problems,
    },
    /// It lacks rules that are in force. Nothing was changed.
    Held {
        /// The rules that it lacks.
        removed: Vec<String>,
    },
    /// The rules do not come from a file.
    NothingToRead,
}

/// The tag of a rule, or of all rules: the same as long as their content is the same.
pub fn etag(value: &Value) -> String {
    format!("\"{}\"", checksum(value.to_string().as_bytes()))
}

/// The tag of a rule.
pub fn etag_of(rule: &Rule) -> String {
    etag(rule.written())
}

/// The rules of a stored JSON list.
fn read_list(list: &Value, settings: &RuleSettings) -> Result<RuleSet, Problems> {
    let document = serde_json::json!({ "rules": list });
    match Node::deserialize(&document) {
        Ok(node) => RuleSet::from_node(&node, &settings.at(now())),
        // Serializing a value in memory cannot fail.
        Err(_) => Err(Problems::new()),
    }
}

fn now() -> Timestamp {
    SystemClock.now()
}
