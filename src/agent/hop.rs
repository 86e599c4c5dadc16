//! Pool-Hop: does a request come from a gateway of this pool? It is compared and nothing else.

use http::HeaderMap;

use super::headers;
use crate::credentials::same;

/// Present and previous generation; a longer list is cut.
const MAX_HOPS: usize = 4;

/// The accepted values, present generation first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hops(Vec<String>);

impl Hops {
    /// Takes over what Welcome said or the state file held; anything that is no proof is left out.
    pub(crate) fn new(values: &[String]) -> Self {
        let proofs = values.iter().filter(|value| value.len() == 64);
        Self(proofs.take(MAX_HOPS).cloned().collect())
    }

    /// For the state file.
    pub(crate) fn values(&self) -> &[String] {
        &self.0
    }

    /// True when the request carries exactly one accepted hop. Every value is compared, in constant time.
    pub(crate) fn accept(&self, request: &HeaderMap) -> bool {
        let Some(shown) = headers::single(request, headers::HOP) else {
            return false;
        };
        self.0.iter().fold(false, |found, hop| found | same(hop, shown))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn present_and_previous_generation_pass_and_nothing_else() {
        let (new, old) = ("a".repeat(64), "b".repeat(64));
        let hops = Hops::new(&[new.clone(), old.clone(), String::new()]);
        let shown = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(headers::HOP, HeaderValue::from_str(value).unwrap());
            hops.accept(&headers)
        };
        assert!(shown(&new));
        assert!(shown(&old));
        assert!(!shown(&"c".repeat(64)));
        assert!(!shown(""));
        assert!(!hops.accept(&HeaderMap::new()));
        assert!(!Hops::default().accept(&HeaderMap::new()));
    }
}
