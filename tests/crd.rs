//! The committed CRDs are what the types say, and what an API server takes.

use std::path::PathBuf;

use elastic_pool::api;
use serde_json::Value;

/// Client-side `kubectl apply` keeps the whole object in an annotation of at most this size.
const MOST_BYTES: usize = 256 * 1024;

fn committed(plural: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("crds")
        .join(format!("{plural}.yaml"))
}

fn walk(path: &str, value: &Value, visit: &mut impl FnMut(&str, &Value)) {
    visit(path, value);
    match value {
        Value::Object(fields) => {
            fields
                .iter()
                .for_each(|(name, inner)| walk(&format!("{path}.{name}"), inner, visit));
        }
        Value::Array(items) => items
            .iter()
            .for_each(|inner| walk(&format!("{path}[]"), inner, visit)),
        _ => {}
    }
}

#[test]
fn the_committed_crds_have_not_drifted() {
    for crd in api::crds() {
        let file = committed(&crd.spec.names.plural);
        let generated = api::crd_yaml(&crd).unwrap();
        if std::env::var_os("UPDATE_CRDS").is_some() {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, &generated).unwrap();
        }
        let committed = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(
            committed == generated,
            "{} differs from the types: run `UPDATE_CRDS=1 cargo test --test crd` and commit it",
            file.display()
        );
    }
}

#[test]
fn the_yaml_of_the_subcommand_reads_back_as_both_crds() {
    let documents: Vec<Value> = serde_saphyr::from_multiple(&api::crds_yaml()).unwrap();
    let names: Vec<_> = documents
        .iter()
        .map(|crd| crd["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["poolgroups.elasticpool.dev", "pools.elasticpool.dev"]);
    let direct: Vec<Value> = api::crds()
        .iter()
        .map(|crd| serde_json::to_value(crd).unwrap())
        .collect();
    assert_eq!(documents, direct);
}

#[test]
fn the_crds_stay_small_enough_for_client_side_apply() {
    for crd in api::crds() {
        let bytes = serde_json::to_string(&crd).unwrap().len();
        assert!(bytes < MOST_BYTES, "{} has {bytes} bytes", crd.spec.names.plural);
    }
}

#[test]
fn every_list_map_and_string_is_bounded() {
    for crd in api::crds() {
        let schema = serde_json::to_value(&crd.spec.versions[0].schema).unwrap();
        walk("", &schema["openAPIV3Schema"]["properties"], &mut |path, node| {
            // The root's apiVersion and kind are the API server's own, a date-time bounds itself.
            if path == ".apiVersion" || path == ".kind" || node["format"] == "date-time" {
                return;
            }
            match node["type"].as_str() {
                Some("array") => assert!(
                    node["maxItems"].is_u64() || node["maxItems"].is_i64(),
                    "{path} has no maxItems"
                ),
                Some("string") if node.get("enum").is_none() && !path.ends_with("additionalProperties") => {
                    assert!(
                        node["maxLength"].is_i64() || node["maxLength"].is_u64(),
                        "{path} has no maxLength"
                    );
                }
                Some("object") if node.get("additionalProperties").is_some() => {
                    assert!(node.get("maxProperties").is_some(), "{path} has no maxProperties");
                }
                Some("integer") if path.starts_with(".spec") => {
                    assert!(node.get("maximum").is_some(), "{path} has no maximum");
                }
                _ => {}
            }
        });
    }
}

#[test]
fn no_enum_word_is_a_boolean_to_yaml_1_1() {
    let words = ["y", "n", "yes", "no", "on", "off", "true", "false"];
    for crd in api::crds() {
        walk(
            "",
            &serde_json::to_value(&crd.spec).unwrap(),
            &mut |path, node| {
                // Conditions have them by Kubernetes' own convention; no person writes them.
                if path.contains(".conditions.") {
                    return;
                }
                for word in node["enum"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_str)
                {
                    assert!(!words.contains(&word.to_lowercase().as_str()), "{path}: {word}");
                }
            },
        );
    }
}

#[test]
fn unknown_fields_are_kept_in_the_pod_spec_alone() {
    for crd in api::crds() {
        walk(
            "",
            &serde_json::to_value(&crd.spec).unwrap(),
            &mut |path, node| {
                if node.get("x-kubernetes-preserve-unknown-fields").is_some() {
                    assert!(
                        path.contains(".template.properties.spec"),
                        "{path} keeps unknown fields"
                    );
                }
            },
        );
    }
}

#[test]
fn every_rule_has_a_message_that_names_its_field() {
    let mut rules = 0;
    for crd in api::crds() {
        walk(
            "",
            &serde_json::to_value(&crd.spec).unwrap(),
            &mut |path, node| {
                for rule in node["x-kubernetes-validations"].as_array().into_iter().flatten() {
                    rules += 1;
                    let message = rule["message"].as_str().unwrap_or_default();
                    assert!(
                        message.starts_with("spec.") || message.starts_with("metadata.name"),
                        "{path}: {message:?} names no field"
                    );
                }
            },
        );
    }
    assert!(rules >= 15, "only {rules} rules");
}
