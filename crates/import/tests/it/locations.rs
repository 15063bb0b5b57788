//! Random servers with prefixes, exact paths, regular expressions and nested locations: the rules that apply to a path
//! are those of the location that nginx chooses.

use std::fmt::Write as _;

use tidegate::{Attributes, Gate, MemoryStore};
use tidegate_testkit::block_on;

use super::support::{import, rules};

/// Numbers that are the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % bound as u64).unwrap()
    }
}

/// A location as the test knows it.
#[derive(Debug, Clone)]
struct Place {
    words: String,
    kind: Kind,
    /// Its own zone, if it has one.
    zone: Option<usize>,
    inner: Vec<Place>,
}

#[derive(Debug, Clone, PartialEq)]
enum Kind {
    Exact(&'static str),
    Prefix(&'static str, bool),
    /// The end of paths that match.
    Ends(&'static str),
}

const PREFIXES: [&str; 5] = ["/", "/a/", "/a/b/", "/a/b/c/", "/d/"];
const EXACT: [&str; 4] = ["/a/x", "/a/b/x", "/d/y.php", "/z"];
const ENDS: [&str; 3] = [".php", "x", "y.php"];
const PATHS: [&str; 14] = [
    "/",
    "/a/x",
    "/a/q",
    "/a/b/x",
    "/a/b/q.php",
    "/a/b/c/q",
    "/a/b/c/x",
    "/a/b/c/y.php",
    "/d/y.php",
    "/d/q",
    "/d/x",
    "/z",
    "/zz",
    "/e/q.php",
];

fn draw(numbers: &mut Numbers, inside: &str, depth: usize) -> Vec<Place> {
    let mut places: Vec<Place> = Vec::new();
    for _ in 0..numbers.below(5) {
        let zone = Some(numbers.below(4)).filter(|zone| *zone < 3);
        let kind = match numbers.below(5) {
            0 => Kind::Exact(EXACT[numbers.below(EXACT.len())]),
            1 => Kind::Ends(ENDS[numbers.below(ENDS.len())]),
            _ => Kind::Prefix(
                PREFIXES[numbers.below(PREFIXES.len())],
                numbers.below(4) == 0,
            ),
        };
        let words = match &kind {
            Kind::Exact(path) => format!("= {path}"),
            Kind::Prefix(path, true) => format!("^~ {path}"),
            Kind::Prefix(path, false) => (*path).to_owned(),
            Kind::Ends(end) => format!("~ {}$", end.replace('.', "\\.")),
        };
        let is_inside = match &kind {
            Kind::Exact(path) => path.starts_with(inside),
            Kind::Prefix(path, _) => path.starts_with(inside) && *path != inside,
            Kind::Ends(_) => true,
        };
        let is_double = places.iter().any(|place| match (&place.kind, &kind) {
            (Kind::Prefix(a, _), Kind::Prefix(b, _)) => a == b,
            (a, b) => a == b,
        });
        if !is_inside || is_double {
            continue;
        }
        let inner = match &kind {
            Kind::Prefix(path, _) if depth < 1 => draw(numbers, path, depth + 1),
            _ => Vec::new(),
        };
        places.push(Place {
            words,
            kind,
            zone,
            inner,
        });
    }
    // Two prefixes of one path would be an error in nginx.
    places
}

fn written(places: &[Place]) -> String {
    let mut text = String::new();
    for place in places {
        let own = place
            .zone
            .map(|zone| format!("limit_req zone=z{zone} nodelay;"))
            .unwrap_or_default();
        let (words, inner) = (&place.words, written(&place.inner));
        writeln!(text, "location {words} {{ {own} {inner} }}").unwrap();
    }
    text
}

/// What nginx finds in a list of locations.
enum Found {
    /// This one, and nothing else is tried.
    Final(Option<usize>),
    /// This one, unless a regular expression matches.
    Open(Option<usize>),
}

/// The zone of a path, as nginx chooses its location. `around` is the zone of the level around.
fn find(places: &[Place], path: &str, around: Option<usize>) -> Found {
    let zone_of = |place: &Place| place.zone.or(around);
    let exact = places
        .iter()
        .find(|place| matches!(place.kind, Kind::Exact(exact) if exact == path));
    if let Some(place) = exact {
        return Found::Final(zone_of(place));
    }
    let prefixes = places.iter().filter_map(|place| match place.kind {
        Kind::Prefix(prefix, is_final) if path.starts_with(prefix) => {
            Some((prefix.len(), is_final, place))
        }
        _ => None,
    });
    let mut chosen = around;
    let mut is_final = false;
    if let Some((_, stops, place)) = prefixes.max_by_key(|(length, _, _)| *length) {
        is_final = stops;
        match find(&place.inner, path, zone_of(place)) {
            Found::Final(zone) => return Found::Final(zone),
            Found::Open(zone) => chosen = zone,
        }
    }
    if !is_final {
        let regex = places
            .iter()
            .find(|place| matches!(place.kind, Kind::Ends(end) if path.ends_with(end)));
        if let Some(place) = regex {
            return Found::Final(zone_of(place));
        }
    }
    Found::Open(chosen)
}

#[test]
fn the_rules_of_a_path_are_those_of_the_location_that_nginx_chooses() {
    let mut numbers = Numbers(26);
    let mut compared = 0;
    for _ in 0..400 {
        let places = draw(&mut numbers, "/", 0);
        let whole = Some(numbers.below(4)).filter(|zone| *zone < 3);
        let own = whole
            .map(|zone| format!("limit_req zone=z{zone} nodelay;"))
            .unwrap_or_default();
        let text = format!(
            "limit_req_zone $http_a zone=z0:1m rate=1r/s; limit_req_zone $http_a zone=z1:1m rate=1r/s;
             limit_req_zone $http_a zone=z2:1m rate=1r/s;
             server {{ {own}\n{} }}",
            written(&places)
        );
        let Ok(imported) = import(&text) else {
            continue;
        };
        assert!(imported.is_same(), "{text}\n{:#?}", imported.findings);
        let gate = Gate::new(MemoryStore::new(), rules(&imported));
        for path in PATHS {
            let mut request = Attributes::new();
            request.insert("path", path).unwrap();
            request.insert("header.a", "x").unwrap();
            let explained = block_on(gate.explain(&request, &|_, value| value.to_owned()));
            let applied = explained.rules().iter().filter(|rule| rule.applies());
            let applied: Vec<&str> = applied.map(|rule| rule.rule.id()).collect();
            let (Found::Final(zone) | Found::Open(zone)) = find(&places, path, whole);
            let expected: Vec<String> = zone.iter().map(|zone| format!("z{zone}")).collect();
            assert_eq!(applied, expected, "{path}\n{text}\n{}", imported.text);
            compared += 1;
        }
    }
    assert!(compared > 3_000, "{compared}");
}
