//! What a refusal of the API server means: a verdict over the manifest, a lack of room, or nothing at all; pure.

use kube::core::Status;

use super::pods::shortened;
use crate::vehicle::SpawnFailure;

/// How many faults of a manifest are told at once.
const FAULTS: usize = 3;

/// The text of a verdict over a worker's template, or `None` where the refusal is no verdict.
///
/// Verdicts are 422, a 400 that names a field, and a 403 of pod security; quota, webhooks, 429, 5xx are none.
pub(crate) fn template_fault(status: &Status) -> Option<String> {
    match status.code {
        422 => Some(faults(status)),
        400 if names_a_field(&status.message) => Some(faults(status)),
        403 if status.message.contains("violates PodSecurity") => Some(shortened(&status.message)),
        _ => None,
    }
}

/// Why a worker could not be made, or `None` where trying the same again may help.
pub(crate) fn spawn_failure(status: &Status) -> Option<SpawnFailure> {
    let message = || shortened(&status.message);
    match status.code {
        403 if status.message.contains("exceeded quota") => Some(SpawnFailure::NoCapacity(message())),
        400 | 422 => Some(SpawnFailure::Mistake(faults(status))),
        403 | 404 | 413 => Some(SpawnFailure::Mistake(message())),
        _ => None,
    }
}

fn names_a_field(message: &str) -> bool {
    [
        "strict decoding error",
        "unknown field",
        "cannot unmarshal",
        "json: ",
    ]
    .iter()
    .any(|part| message.contains(part))
}

/// The fields that are wrong, as they are called in a PoolGroup, each with what is wrong.
fn faults(status: &Status) -> String {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let named = causes.filter(|cause| !cause.field.is_empty()).take(FAULTS);
    let named: Vec<String> = named
        .map(|cause| format!("{}: {}", in_template(&cause.field), cause.message))
        .collect();
    if !named.is_empty() {
        return shortened(&named.join("; "));
    }
    let message = &status.message;
    let from = message
        .find("strict decoding error")
        .map_or(message.as_str(), |at| &message[at..]);
    shortened(
        &from
            .replace("\"spec.", "\"spec.template.spec.")
            .replace("\"metadata.", "\"spec.template.metadata."),
    )
}

fn in_template(field: &str) -> String {
    if field.starts_with("spec") || field.starts_with("metadata") {
        format!("spec.template.{field}")
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(code: u16, message: &str) -> Status {
        serde_json::from_value(json!({"code": code, "message": message, "reason": ""})).unwrap()
    }

    #[test]
    fn an_invalid_pod_names_the_field_of_the_poolgroup() {
        let invalid = json!({"code": 422, "message": "Pod is invalid", "reason": "Invalid", "details": {"causes": [
            {"reason": "FieldValueRequired", "message": "Required value", "field": "spec.containers[0].image"}]}});
        let invalid: Status = serde_json::from_value(invalid).unwrap();
        let text = "spec.template.spec.containers[0].image: Required value";
        assert_eq!(template_fault(&invalid).as_deref(), Some(text));
        assert_eq!(
            spawn_failure(&invalid),
            Some(SpawnFailure::Mistake(text.to_owned()))
        );
    }

    #[test]
    fn an_unknown_field_is_named() {
        let text =
            r#"Pod in version "v1" cannot be handled: strict decoding error: unknown field "spec.colour""#;
        let told = r#"strict decoding error: unknown field "spec.template.spec.colour""#;
        assert_eq!(template_fault(&status(400, text)).as_deref(), Some(told));
    }

    #[test]
    fn pod_security_is_a_verdict_and_quota_is_a_lack_of_room() {
        let security = status(
            403,
            r#"pods "x" is forbidden: violates PodSecurity "restricted:latest": privileged"#,
        );
        assert!(template_fault(&security).is_some());
        let quota = status(403, r#"pods "x" is forbidden: exceeded quota: small"#);
        assert_eq!(template_fault(&quota), None);
        assert!(matches!(spawn_failure(&quota), Some(SpawnFailure::NoCapacity(_))));
    }

    #[test]
    fn what_may_pass_by_itself_is_no_verdict() {
        for code in [409, 429, 500, 503, 504] {
            assert_eq!(template_fault(&status(code, "try again")), None);
            assert_eq!(spawn_failure(&status(code, "try again")), None);
        }
        assert_eq!(
            template_fault(&status(400, "admission webhook does not support dry run")),
            None
        );
    }
}
