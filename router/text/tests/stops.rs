//! Stops against a naive search.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use headrace_text::{StopMatcher, StopMode, TextError};
use proptest::prelude::*;

/// Feeds pieces until a match; the text released (tail included) and the stop.
fn run(pieces: &[&str], stops: &[&str], mode: StopMode) -> (String, Option<usize>) {
    run_early(pieces, stops, mode, 0)
}

/// The same; in the first `early` pieces no stop may end.
fn run_early(
    pieces: &[&str],
    stops: &[&str],
    mode: StopMode,
    early: usize,
) -> (String, Option<usize>) {
    let mut matcher = StopMatcher::new(stops, mode).unwrap();
    let mut text = String::new();
    for (index, piece) in pieces.iter().enumerate() {
        matcher.set_early(index < early);
        let step = matcher.push(piece);
        text.push_str(&step.released);
        if step.matched.is_some() {
            assert!(matcher.is_over());
            assert_eq!(matcher.push("more").released, "");
            assert_eq!(matcher.finish(), "");
            return (text, step.matched);
        }
    }
    text.push_str(&matcher.finish());
    (text, None)
}

/// The rule, word for word: the first piece after which any stop is complete; of those complete, the earliest start,
/// then the longest.
fn naive(pieces: &[&str], stops: &[&str], mode: StopMode) -> (String, Option<usize>) {
    naive_early(pieces, stops, mode, 0)
}

/// The same; a stop counts if it ends behind the first `early` pieces.
fn naive_early(
    pieces: &[&str],
    stops: &[&str],
    mode: StopMode,
    early: usize,
) -> (String, Option<usize>) {
    let begin: usize = pieces.iter().take(early).map(|piece| piece.len()).sum();
    let mut text = String::new();
    for piece in pieces {
        text.push_str(piece);
        let found = stops
            .iter()
            .enumerate()
            .filter_map(|(index, stop)| {
                (0..text.len())
                    .find(|&start| {
                        text.is_char_boundary(start)
                            && text[start..].starts_with(stop)
                            && start + stop.len() > begin
                    })
                    .map(|start| (start, std::cmp::Reverse(stop.len()), index))
            })
            .min();
        if let Some((start, length, index)) = found {
            text.truncate(if mode == StopMode::KeepStop {
                start + length.0
            } else {
                start
            });
            return (text, Some(index));
        }
    }
    (text, None)
}

#[test]
fn earliest_start_then_longest_among_those_complete() {
    let both = [StopMode::KeepStop, StopMode::CutStop];
    let check = |pieces: &[&str], stops: &[&str], kept: &str, cut: &str, stop: Option<usize>| {
        assert_eq!(
            run(pieces, stops, both[0]),
            (kept.to_owned(), stop),
            "{pieces:?} {stops:?}"
        );
        assert_eq!(
            run(pieces, stops, both[1]),
            (cut.to_owned(), stop),
            "{pieces:?} {stops:?}"
        );
    };
    check(&["abc", "d"], &["d", "bc"], "abc", "a", Some(1));
    check(&["abcd"], &["bc", "abcd"], "abcd", "", Some(1));
    check(&["abcd"], &["ab", "abc"], "abc", "", Some(1));
    // The longer one might still complete; it is not waited for.
    check(&["ab", "c"], &["abc", "b"], "ab", "a", Some(1));
    // Inside a longer token, and across tokens.
    check(&["x STOP y"], &["STOP"], "x STOP", "x ", Some(0));
    check(&["x ST", "OP y"], &["STOP"], "x STOP", "x ", Some(0));
    check(&["ST", "x"], &["STOP"], "STx", "STx", None);
    check(&["aab", "aac"], &["aac"], "aabaac", "aab", Some(0));
    check(&["日", "本"], &["本"], "日本", "日", Some(0));
    check(&["a"], &["a", "a"], "a", "", Some(0));
}

#[test]
fn kept_stops_hold_nothing_back_and_cut_ones_the_longest_start_of_any() {
    let mut keep = StopMatcher::new(&["STOP"], StopMode::KeepStop).unwrap();
    assert_eq!(keep.push("xSTO").released, "xSTO");
    assert_eq!(keep.push("P!").released, "P");
    let mut cut = StopMatcher::new(&["STOP", "Ox"], StopMode::CutStop).unwrap();
    assert_eq!(cut.push("xSTO").released, "x");
    assert_eq!(cut.push("O").released, "STO");
    assert_eq!(cut.push("").released, "");
    assert_eq!(cut.finish(), "O");
    let mut none = StopMatcher::new::<&str>(&[], StopMode::CutStop).unwrap();
    assert_eq!(none.push("abc").released, "abc");
}

#[test]
fn hidden_text_matches_and_is_never_released() {
    for (mode, expected) in [(StopMode::KeepStop, "hi"), (StopMode::CutStop, "hi")] {
        let mut matcher = StopMatcher::new(&["<|eot|>"], mode).unwrap();
        assert_eq!(matcher.push("hi").released, expected);
        let step = matcher.push_hidden("<|eot|>");
        assert_eq!((step.released.as_str(), step.matched), ("", Some(0)));
    }
    let mut matcher = StopMatcher::new(&["a<b>c"], StopMode::CutStop).unwrap();
    assert_eq!(matcher.push("xa").released, "x");
    assert_eq!(matcher.push_hidden("<b>").released, "");
    assert_eq!(matcher.push("d").released, "ad");
}

#[test]
fn an_empty_stop_is_refused() {
    let error = StopMatcher::new(&["a", ""], StopMode::CutStop).unwrap_err();
    assert!(matches!(error, TextError::EmptyStop { index: 1 }));
}

#[test]
fn a_hostile_text_costs_linear_time() {
    // Every prefix of the stop keeps matching; a quadratic matcher would need 10^11 steps.
    let stop = format!("{}b", "a".repeat(100_000));
    let mut matcher = StopMatcher::new(&[stop.as_str()], StopMode::CutStop).unwrap();
    let started = std::time::Instant::now();
    let mut released = 0;
    for _ in 0..1_000_000 {
        released += matcher.push("a").released.len();
    }
    released += matcher.finish().len();
    assert_eq!(released, 1_000_000);
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
}

#[test]
fn a_stop_that_comes_too_early_is_text_and_one_that_ends_later_counts() {
    for (pieces, early, text, stop) in [
        (&["xSTOPy", "z", "STOP"][..], 1, "xSTOPyz", Some(0)),
        (&["ST", "OP", "a"], 1, "", Some(0)),
        (&["STOP", "STOP"], 2, "STOPSTOP", None),
        (&["STOP", "STOP"], 0, "", Some(0)),
        (&["STOPST", "OP"], 1, "STOP", Some(0)),
    ] {
        let stops = ["STOP"];
        let found = run_early(pieces, &stops, StopMode::CutStop, early);
        assert_eq!(found, (text.to_owned(), stop), "{pieces:?} {early}");
    }
    // One stop inside another's end: what may begin there is held back.
    let mut matcher = StopMatcher::new(&["abab"], StopMode::CutStop).unwrap();
    matcher.set_early(true);
    assert_eq!(matcher.push("abab").released, "ab");
    matcher.set_early(false);
    let step = matcher.push("ab");
    assert_eq!((step.released.as_str(), step.matched), ("", Some(0)));
}

proptest! {
    #[test]
    fn early_stops_are_those_that_end_in_early_pieces(
        pieces in proptest::collection::vec("[abé]{0,4}", 0..12),
        stops in proptest::collection::vec("[abé]{1,4}", 0..4),
        early in 0..6_usize,
    ) {
        let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
        let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
        for mode in [StopMode::KeepStop, StopMode::CutStop] {
            let found = run_early(&pieces, &stops, mode, early);
            prop_assert_eq!(found, naive_early(&pieces, &stops, mode, early));
        }
    }

    #[test]
    fn the_matcher_is_the_naive_search(
        pieces in proptest::collection::vec("[abé]{0,4}", 0..12),
        stops in proptest::collection::vec("[abé]{1,4}", 0..4),
    ) {
        let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
        let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
        for mode in [StopMode::KeepStop, StopMode::CutStop] {
            prop_assert_eq!(run(&pieces, &stops, mode), naive(&pieces, &stops, mode));
        }
    }

    #[test]
    fn no_more_is_held_back_than_a_stop_needs(text in "[ab]{0,20}", stops in proptest::collection::vec("[ab]{2,5}", 1..4)) {
        let mut matcher = StopMatcher::new(&stops, StopMode::CutStop).unwrap();
        let mut seen = String::new();
        let mut released = String::new();
        for character in text.chars() {
            seen.push(character);
            let step = matcher.push(&character.to_string());
            released.push_str(&step.released);
            if step.matched.is_some() {
                return Ok(());
            }
            let longest = (0..=seen.len())
                .find(|&start| stops.iter().any(|stop| stop.starts_with(&seen[start..])))
                .map_or(0, |start| seen.len() - start);
            prop_assert_eq!(released.len(), seen.len() - longest);
        }
    }
}
