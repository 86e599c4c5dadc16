//! Reads PoolGroups and Pools from YAML, for runs without an API server; as strict as `kubectl apply`.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::measures::FieldError;
use super::{API_VERSION, Pool, PoolGroup};

/// What a file of manifests holds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Manifests {
    /// Its PoolGroups, in order.
    pub groups: Vec<PoolGroup>,
    /// Its Pools, in order.
    pub pools: Vec<Pool>,
    /// `Kind name` of every other object, in order: a local run has no use for them.
    pub skipped: Vec<String>,
}

/// A file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// It is not YAML.
    #[error("no YAML: {0}")]
    Yaml(String),
    /// An object does not have the form of its kind.
    #[error("{kind} {name}: {field}: {message}")]
    Shape {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
        /// Path of the field, or of the object that lacks one.
        field: String,
        /// What is wrong.
        message: String,
    },
    /// A field that cannot be used.
    #[error("{kind} {name}: {error}")]
    Field {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
        /// The field.
        error: FieldError,
    },
}

/// Reads all documents of `text`.
///
/// Errors: the first that is no YAML, of another version of this API, of a wrong form, or with an unknown field.
/// Bounds are [`super::resolve::group_spec`]'s.
pub fn read(text: &str) -> Result<Manifests, ManifestError> {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(text).map_err(|error| ManifestError::Yaml(error.to_string()))?;
    let mut manifests = Manifests::default();
    for document in documents.into_iter().filter(|document| !document.is_null()) {
        let kind = document["kind"]
            .as_str()
            .unwrap_or("an object without kind")
            .to_owned();
        let ours = kind == "PoolGroup" || kind == "Pool";
        if !ours {
            let name = document["metadata"]["name"].as_str().unwrap_or_default();
            manifests
                .skipped
                .push(format!("{kind} {name}").trim_end().to_owned());
        } else if document["apiVersion"] != API_VERSION {
            let error = FieldError::new(
                "apiVersion",
                &document["apiVersion"],
                format!("write {API_VERSION}"),
            );
            return Err(ManifestError::Field {
                name: name_of(&document),
                kind,
                error,
            });
        } else if kind == "Pool" {
            manifests.pools.push(strict(&document, &kind)?);
        } else {
            manifests.groups.push(strict(&document, &kind)?);
        }
    }
    Ok(manifests)
}

fn name_of(document: &Value) -> String {
    document["metadata"]["name"]
        .as_str()
        .unwrap_or("without a name")
        .to_owned()
}

/// Reads one object and refuses what its type does not know.
fn strict<T: DeserializeOwned + Serialize>(document: &Value, kind: &str) -> Result<T, ManifestError> {
    let (kind, name) = (kind.to_owned(), name_of(document));
    let shape = |field: String, message: String| ManifestError::Shape {
        kind: kind.clone(),
        name: name.clone(),
        field,
        message,
    };
    let object: T = serde_path_to_error::deserialize(document)
        .map_err(|error| shape(error.path().to_string(), error.inner().to_string()))?;
    let known = serde_json::to_value(&object).map_err(|error| shape(".".to_owned(), error.to_string()))?;
    match unknown(document, &known) {
        None => Ok(object),
        Some(field) => {
            let error = FieldError::new(field, "unknown field", "take it out, or mend its name");
            Err(ManifestError::Field { kind, name, error })
        }
    }
}

/// The first field of `given` that did not survive in `known`. A field that is null or empty may be left out.
fn unknown(given: &Value, known: &Value) -> Option<String> {
    match (given, known) {
        (Value::Object(given), Value::Object(known)) => given.iter().find_map(|(name, inner)| {
            let Some(kept) = known.get(name) else {
                return (!is_empty(inner)).then(|| name.clone());
            };
            unknown(inner, kept).map(|rest| format!("{name}.{rest}").replace(".[", "["))
        }),
        (Value::Array(given), Value::Array(known)) => {
            given
                .iter()
                .zip(known)
                .enumerate()
                .find_map(|(index, (inner, kept))| {
                    unknown(inner, kept).map(|rest| format!("[{index}].{rest}").replace("].[", "]["))
                })
        }
        _ => None,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: &str = "
apiVersion: elasticpool.dev/v1alpha1
kind: PoolGroup
metadata: {name: shop-blue}
spec:
  pool: shop
  template:
    spec:
      serviceAccountName: app
      containers:
      - name: app
        command: [app]
        ports: [{containerPort: 8080}]
        resources: {limits: {cpu: 1}}
";

    #[test]
    fn groups_pools_and_others_are_told_apart() {
        let text = format!(
            "{GROUP}---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: shop}}\n---\napiVersion: elasticpool.dev/v1alpha1\nkind: Pool\nmetadata: {{name: shop}}\nspec: {{}}\n---\n"
        );
        let read = read(&text).unwrap();
        assert_eq!((read.groups.len(), read.pools.len()), (1, 1));
        assert_eq!(read.skipped, ["Namespace shop"]);
        assert_eq!(
            read.groups[0].spec.template.spec.rest["serviceAccountName"],
            "app"
        );
    }

    #[test]
    fn unknown_fields_are_refused_by_path_outside_the_pod_spec_only() {
        let case = |from: &str, to: &str| {
            read(&GROUP.replace(from, to))
                .map(|_| ())
                .map_err(|e| e.to_string())
        };
        assert_eq!(
            case("  pool: shop", "  pool: shop\n  workers: {min: 1, maximum: 3}"),
            Err(
                "PoolGroup shop-blue: spec.workers.maximum: unknown field: take it out, or mend its name"
                    .into()
            )
        );
        assert_eq!(
            case("containerPort: 8080", "containerPort: 8080, hots: 1"),
            Err("PoolGroup shop-blue: spec.template.spec.containers[0].ports[0].hots: unknown field: take it out, or mend its name".into())
        );
        assert_eq!(case("serviceAccountName", "whatever"), Ok(()));
        assert!(case("v1alpha1", "v1").unwrap_err().contains("apiVersion"));
        assert!(
            case("kind: PoolGroup", "kind: [")
                .unwrap_err()
                .contains("no YAML")
        );
        assert_eq!(
            case("  pool: shop\n", ""),
            Err("PoolGroup shop-blue: spec: missing field `pool`".into())
        );
        assert_eq!(
            case("containerPort: 8080", "containerPort: 70000"),
            Err("PoolGroup shop-blue: spec.template.spec.containers[0].ports[0].containerPort: invalid value: integer `70000`, expected u16".into())
        );
    }
}
