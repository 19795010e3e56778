//! The known name that an unknown one is probably meant to be.

/// Bytes of a name that is worth a look.
const LONGEST: usize = 48;

/// The name of `known` that is nearest to `name`, if one is near enough and no other is as near. Case, `_` and `-` say
/// nothing: `maxTokens` is `max_tokens`.
pub(crate) fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    if name.len() > LONGEST {
        return None;
    }
    let wanted = letters(name);
    let allowed = match wanted.len() {
        0..=3 => 0,
        4..=7 => 1,
        _ => 2,
    };
    let mut best: Option<(usize, &str)> = None;
    let mut is_tied = false;
    for &candidate in known {
        let spelt = letters(candidate);
        if wanted.is_empty() || spelt.len().abs_diff(wanted.len()) > allowed {
            continue;
        }
        let distance = strsim::osa_distance(&wanted, &spelt);
        match best {
            _ if distance > allowed => {}
            Some((least, _)) if distance > least => {}
            Some((least, found)) if distance == least => is_tied |= found != candidate,
            _ => {
                best = Some((distance, candidate));
                is_tied = false;
            }
        }
    }
    best.filter(|_| !is_tied).map(|(_, found)| found)
}

fn letters(name: &str) -> String {
    let kept = name.chars().filter(|letter| !matches!(letter, '_' | '-'));
    kept.map(|letter| letter.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_names_are_known_and_others_are_not() {
        let known = [
            "max_tokens",
            "min_tokens",
            "temperature",
            "top_k",
            "top_p",
            "stop",
            "stop_token_ids",
            "n",
            "seed",
            "frequency_penalty",
            "presence_penalty",
            "stream",
            "stream_options",
        ];
        for (name, due) in [
            ("max_tokes", Some("max_tokens")),
            ("max_token", Some("max_tokens")),
            ("maxTokens", Some("max_tokens")),
            ("MAX-TOKENS", Some("max_tokens")),
            ("max_tokesn", Some("max_tokens")),
            ("temprature", Some("temperature")),
            ("temperatur", Some("temperature")),
            ("topk", Some("top_k")),
            ("seeds", Some("seed")),
            ("stop_token_id", Some("stop_token_ids")),
            ("frequency_penality", Some("frequency_penalty")),
            ("streams", Some("stream")),
            // As near to one as to another.
            ("top_n", None),
            // Nothing of ours.
            ("m", None),
            ("num_beams", None),
            ("", None),
            ("__", None),
        ] {
            assert_eq!(nearest(name, &known), due, "{name}");
        }
        assert_eq!(nearest(&"max_tokens".repeat(1000), &known), None);
        assert_eq!(nearest("a", &[]), None);
    }
}
