//! Configurations after real ones, each with what is written for it and what is reported, or why it is refused.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use tidegate_import::{
    ImportFile, ImportSettings, ImportedRules, NothingImported, import_ingress, import_nginx,
};

use super::support::{ShapeFiles, import, rules};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/shapes")
}

/// The name of each shape, and its first file.
fn shapes() -> Vec<(String, PathBuf)> {
    let mut shapes = Vec::new();
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            shapes.push((name, path.join("nginx.conf")));
        } else {
            shapes.push((name, path));
        }
    }
    shapes.sort();
    shapes
}

fn imported(path: &Path, settings: &ImportSettings) -> Result<ImportedRules, NothingImported> {
    let file = ImportFile {
        name: path.file_name().unwrap().to_string_lossy().into_owned(),
        text: fs::read_to_string(path).unwrap(),
    };
    if path
        .extension()
        .is_some_and(|extension| extension == "yaml")
    {
        import_ingress(&[file], settings)
    } else {
        import_nginx(&[file], &ShapeFiles(path.parent().unwrap()), settings)
    }
}

fn shown(result: &Result<ImportedRules, NothingImported>) -> String {
    let (text, findings, end) = match result {
        Ok(imported) => {
            let is_same = if imported.is_same() {
                "same meaning"
            } else {
                "not the same"
            };
            (
                imported.text.as_str(),
                &imported.findings,
                is_same.to_owned(),
            )
        }
        Err(refused) => ("", &refused.findings, format!("refused: {refused}")),
    };
    let mut shown = String::new();
    for finding in findings {
        writeln!(shown, "{finding}").unwrap();
    }
    writeln!(shown, "{end}\n{text}").unwrap();
    shown
}

#[test]
fn every_shape_is_written_as_valid_rules_or_refused_with_its_reason() {
    let shapes = shapes();
    let of_nginx = shapes
        .iter()
        .filter(|(_, path)| path.extension().unwrap() == "conf");
    assert!(of_nginx.count() >= 30, "there are 30 shapes of nginx");
    for (name, path) in shapes {
        let result = imported(&path, &ImportSettings::default());
        if let Ok(imported) = &result {
            assert!(!rules(imported).is_empty(), "{name}");
        }
        insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true, snapshot_path => "snapshots" }, {
            insta::assert_snapshot!(name, shown(&result));
        });
    }
}

#[test]
fn replicas_multiply_the_limits_of_ingresses() {
    let settings = ImportSettings {
        replicas: Some(3),
        ipv6_prefix: 128,
    };
    let path = folder().join("40-ingress.yaml");
    let imported = imported(&path, &settings).unwrap();
    // Three pods admit 51 requests each: the first one and its burst of 50.
    assert!(
        imported.text.contains("limit: 30/second burst 153\n"),
        "{}",
        imported.text
    );
    assert!(imported.text.contains("limit: 60\n"), "{}", imported.text);
    let findings: Vec<String> = imported.findings.iter().map(ToString::to_string).collect();
    assert!(
        !findings.iter().any(|line| line.contains("--replicas")),
        "{findings:?}"
    );
}

#[test]
fn addresses_that_the_server_counts_one_by_one_are_no_difference() {
    let path = folder().join("02-nodelay-429.conf");
    let settings = ImportSettings {
        ipv6_prefix: 128,
        ..ImportSettings::default()
    };
    assert!(imported(&path, &settings).unwrap().is_same());
    assert!(
        !imported(&path, &ImportSettings::default())
            .unwrap()
            .is_same()
    );
}

#[test]
fn no_text_of_a_configuration_becomes_a_line_of_the_rules() {
    let text =
        "limit_req_zone \"$binary_remote_addr\\n- id: evil\" \"zone=a\\n  - forged\" rate=1r/s;
        limit_req \"zone=a\\n  - forged\" burst=1;";
    let imported = import(text).unwrap();
    assert_eq!(rules(&imported).len(), 1, "{}", imported.text);
    assert!(!imported.text.contains("\n  - forged"), "{}", imported.text);
}

#[test]
fn includes_and_blocks_are_bounded() {
    struct Itself;
    impl tidegate_import::IncludedFiles for Itself {
        fn find(&self, _root: &str, _pattern: &str) -> Result<Vec<ImportFile>, String> {
            let text = "include again; include again;".to_owned();
            let name = "again".to_owned();
            Ok(vec![ImportFile { name, text }])
        }
    }
    let file = ImportFile {
        name: "nginx.conf".to_owned(),
        text: "include again;".to_owned(),
    };
    let refused = import_nginx(&[file], &Itself, &ImportSettings::default()).unwrap_err();
    assert_eq!(
        refused.message,
        "again:1: files include each other more than 16 deep"
    );
    let refused = import(&"a {".repeat(1_000_000)).unwrap_err();
    assert!(refused.message.contains("more than 32 deep"), "{refused}");
    let mut maps = String::new();
    for number in 0..40 {
        let next = number + 1;
        writeln!(
            maps,
            "map $k{next} $k{number} {{ default 1; ~a$ $k{next}; b 2; }}"
        )
        .unwrap();
    }
    let refused = import(&format!(
        "{maps} limit_req_zone $k0 zone=a:1m rate=1r/s; limit_req zone=a;"
    ));
    assert!(refused.is_err());
}
