//! Constrained sequences: every id is one that the grammar allows, whatever happens around them.

use crate::engine_support::{Dice, Ending, Harness, Setup, VOCAB, faulty, read, run_and_compare};
use crate::tiny_tokenizer::{BYTES, END, EOS, json};
use headrace_fake_worker::{FaultKind, Script, Trigger};
use headrace_grammar::{CompiledGrammar, GrammarCompiler, GrammarSource};
use headrace_scheduler::{FinishReason, SequenceRequest};
use headrace_text::Tokenizer;
use std::time::Duration;

fn tokenizer() -> Tokenizer {
    Tokenizer::from_bytes(json().to_string().as_bytes()).unwrap()
}

fn compile(regex: &str, vocab_size: u32) -> CompiledGrammar {
    compile_with(regex, vocab_size, &[EOS, END])
}

fn compile_with(regex: &str, vocab_size: u32, end_ids: &[u32]) -> CompiledGrammar {
    let compiler = GrammarCompiler::new(&tokenizer(), end_ids, vocab_size, false).unwrap();
    let source = GrammarSource::Regex(regex.to_owned());
    compiler.compile(&source).unwrap()
}

fn request(harness: &Harness, prompt: &[u32]) -> SequenceRequest {
    let mut request = harness.request(prompt, 80);
    request.stop.eos_token_ids = [EOS, END].into();
    request
}

fn text_of(tokenizer: &Tokenizer, ids: &[u32]) -> String {
    let bytes = ids
        .iter()
        .flat_map(|id| tokenizer.token_bytes(*id).to_vec());
    String::from_utf8(bytes.collect()).unwrap()
}

/// Runs 16 sequences of `[a-z]{6,30}[0-9]` beside 8 free ones and gives their ids.
async fn constrained_run(harness: &Harness) -> Vec<Vec<u32>> {
    let tokenizer = tokenizer();
    let grammar = compile("[a-z]{6,30}[0-9]", VOCAB);
    let mut dice = Dice(77);
    let mut running = Vec::new();
    for _ in 0..16 {
        let request = request(harness, &dice.prompt(60));
        let grammar = Some(grammar.clone());
        let stream = harness.handle.submit(request, grammar).await.unwrap();
        running.push(tokio::spawn(read(stream)));
    }
    run_and_compare(harness, 78, 8).await;
    let mut outputs = Vec::new();
    for task in running {
        let (ids, ending) = task.await.unwrap();
        assert_eq!(ending, Ending::Finished(FinishReason::Eos));
        let (last, text) = ids.split_last().unwrap();
        assert!([EOS, END].contains(last));
        let text = text_of(&tokenizer, text);
        let letters = text.trim_end_matches(|letter: char| letter.is_ascii_digit());
        assert!(
            (6..=30).contains(&letters.len())
                && letters.bytes().all(|byte| byte.is_ascii_lowercase())
                && text.len() == letters.len() + 1,
            "{text}"
        );
        outputs.push(ids);
    }
    outputs
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn constrained_ids_are_allowed_ones_and_the_same_after_crashes_and_preemptions() {
    let mut undisturbed = None;
    let deaths = vec![
        vec![faulty(Trigger::Step(9), FaultKind::Die)],
        vec![faulty(Trigger::Step(7), FaultKind::FailStep)],
        vec![Script::default()],
    ];
    for (starts, num_blocks, in_flight) in [
        (vec![vec![Script::default()]], 512, 1),
        (vec![vec![Script::default()]], 512, 2),
        (vec![vec![Script::default()]], 48, 2),
        (vec![vec![Script::default(), Script::default()]], 512, 2),
        (deaths, 512, 2),
    ] {
        let mut setup = Setup {
            num_blocks,
            starts,
            ..Setup::default()
        };
        setup.config.max_steps_in_flight = in_flight;
        let harness = Harness::ready(setup).await;
        let outputs = constrained_run(&harness).await;
        harness.check_books().await;
        let expected = undisturbed.get_or_insert(outputs.clone());
        assert_eq!(
            outputs, *expected,
            "{num_blocks} blocks, {in_flight} in flight"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grammar_without_a_way_on_ends_its_own_sequence_only() {
    let mut setup = Setup::default();
    setup.config.max_steps_in_flight = 2;
    let harness = Harness::ready(setup).await;
    // The first byte of the second character is an id beyond what this grammar may use.
    let grammar = compile("a\u{65e5}", BYTES + 200);
    let stream = harness
        .handle
        .submit(request(&harness, &[5, 6, 7]), Some(grammar))
        .await
        .unwrap();
    let (ids, ending) = read(stream).await;
    assert_eq!(ids, [BYTES + u32::from(b'a')]);
    assert!(matches!(ending, Ending::DeadEnd(_)), "{ending:?}");
    run_and_compare(&harness, 79, 8).await;
    harness.check_books().await;
    assert_eq!(*harness.seen.starts.lock().unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn constrained_clients_that_leave_hold_no_step_back() {
    let mut setup = Setup {
        starts: vec![vec![Script {
            step_micros: 300,
            ..Script::default()
        }]],
        ..Setup::default()
    };
    setup.config.max_steps_in_flight = 2;
    let harness = Harness::ready(setup).await;
    let grammar = compile("[a-z]{60,70}", VOCAB);
    let mut dice = Dice(80);
    let mut tasks = Vec::new();
    for _ in 0..120 {
        let request = request(&harness, &dice.prompt(60));
        let patience = Duration::from_micros(u64::from(dice.below(40_000)));
        let (handle, grammar) = (harness.handle.clone(), Some(grammar.clone()));
        tasks.push(tokio::spawn(async move {
            let whole = async { read(handle.submit(request, grammar).await.unwrap()).await };
            tokio::time::timeout(patience, whole).await.is_ok()
        }));
    }
    let mut finished = 0;
    for task in tasks {
        finished += u32::from(task.await.unwrap());
    }
    assert!(finished < 100, "{finished} finished: nobody left");
    harness.check_books().await;
    run_and_compare(&harness, 81, 10).await;
    harness.check_books().await;
    assert_eq!(*harness.seen.starts.lock().unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_complete_grammar_ends_its_sequence_also_where_no_id_does() {
    let tokenizer = tokenizer();
    for max_steps_in_flight in [1, 2] {
        let mut setup = Setup::default();
        setup.config.max_steps_in_flight = max_steps_in_flight;
        let harness = Harness::ready(setup).await;
        let mut dice = Dice(82);
        for length in [1, 2, 17] {
            let mut request = request(&harness, &dice.prompt(60));
            request.stop.eos_token_ids = [].into();
            let grammar = compile_with(&format!("[0-9]{{{length}}}"), VOCAB, &[]);
            let stream = harness.handle.submit(request, Some(grammar)).await.unwrap();
            let (ids, ending) = read(stream).await;
            assert_eq!(ending, Ending::Finished(FinishReason::Eos));
            let text = text_of(&tokenizer, &ids);
            assert!(text.len() == length && text.bytes().all(|byte| byte.is_ascii_digit()));
        }
        run_and_compare(&harness, 83, 8).await;
        harness.check_books().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn min_tokens_put_an_end_off_only_as_long_as_the_grammar_goes_on() {
    let mut setup = Setup::default();
    setup.config.max_steps_in_flight = 2;
    let harness = Harness::ready(setup).await;
    let mut dice = Dice(84);
    let mut ended_early = 0;
    for (regex, min_tokens) in [("[0-9]{3}", 20), ("[0-9]*", 20), ("[0-9]*", 0)] {
        for _ in 0..20 {
            let mut request = request(&harness, &dice.prompt(60));
            request.stop.min_tokens = min_tokens;
            request.sampling.min_tokens = min_tokens;
            request.sampling.suppressed_token_ids = vec![EOS, END];
            let grammar = Some(compile(regex, VOCAB));
            let stream = harness.handle.submit(request, grammar).await.unwrap();
            let (ids, ending) = read(stream).await;
            match (regex, min_tokens) {
                ("[0-9]{3}", _) => {
                    assert_eq!(ending, Ending::Finished(FinishReason::Eos));
                    assert!((2..=4).contains(&ids.len()), "{ids:?}");
                }
                (_, 0) => ended_early += u32::from(ids.len() <= 20),
                _ => {
                    assert!(ids.len() > 20, "{ids:?}");
                    assert!(!ids[..20].iter().any(|id| [EOS, END].contains(id)));
                }
            }
        }
    }
    // Otherwise nothing was put off.
    assert!(ended_early > 0);
    harness.check_books().await;
}
