//! What stays cached, for how long, and what a flush does.

use std::sync::Arc;
use std::time::Duration;

use headrace_scheduler::{Retention, SchedulerConfig, SequenceRequest, StepOutcome, TokenId};

use crate::scene::{GROUP, Scene, config, request, token};

fn with_retention(id: u64, length: u32, max_new_tokens: u32, retention: u8) -> SequenceRequest {
    SequenceRequest {
        retention: Retention(retention),
        ..request(id, length, max_new_tokens)
    }
}

impl Scene {
    /// How much of the prompt of sequence `id` is cached.
    fn cached(&self, id: u64) -> u32 {
        let ids: Vec<TokenId> = request(id, 60, 1).prompt.to_vec();
        self.scheduler.cached_prefix(GROUP, 0, &ids)
    }

    /// The prompt of `of` under another name.
    fn again(&mut self, id: u64, of: u64, length: u32, max_new_tokens: u32, retention: u8) {
        let prompt = request(of, length, 1).prompt;
        self.take(SequenceRequest {
            prompt,
            ..with_retention(id, length, max_new_tokens, retention)
        });
    }

    fn run_alone(&mut self, id: u64, length: u32, retention: u8) {
        self.take(with_retention(id, length, 1, retention));
        self.drain();
    }
}

#[test]
fn the_lowest_retention_goes_first_then_the_least_recently_used() {
    let config = SchedulerConfig {
        max_steps_in_flight: 8,
        ..config()
    };
    let mut scene = Scene::new(config, 12);
    scene.run_alone(1, 8, 100);
    scene.run_alone(2, 8, 35);
    scene.run_alone(3, 8, 35);
    scene.run_alone(4, 8, 0);
    scene.run_alone(5, 8, 36);
    let cached = |scene: &Scene| [1, 2, 3, 4, 5].map(|id| scene.cached(id) / 4);
    assert_eq!(cached(&scene), [2, 2, 2, 2, 2]);
    // Two blocks are free, so the first of each pair takes none of them; each of the others takes a leaf's end.
    for (id, left) in [
        (11, [2, 2, 2, 0, 2]),
        (12, [2, 0, 2, 0, 2]),
        (13, [2, 0, 0, 0, 2]),
        (14, [2, 0, 0, 0, 0]),
        (15, [0, 0, 0, 0, 0]),
    ] {
        let length = if id == 11 { 16 } else { 8 };
        scene.submit(id, length, 1);
        scene.plan();
        assert_eq!(cached(&scene), left, "after {id}");
    }
}

#[test]
fn a_shared_block_has_the_highest_retention_of_its_live_or_last_users() {
    let mut scene = Scene::new(config(), 8);
    // Together: what the second of them is does not lower it.
    scene.take(with_retention(1, 8, 3, 100));
    scene.step();
    scene.again(2, 1, 9, 3, 0);
    scene.drain();
    scene.run_alone(3, 8, 50);
    assert!(scene.cached(1) >= 8 && scene.cached(3) == 8);
    scene.take(with_retention(4, 16, 1, 50));
    scene.plan();
    assert!(scene.cached(1) >= 8, "it outlasts 50");
    assert_eq!(scene.cached(3), 4);

    // Later and alone: it is worth what its last user says.
    let mut scene = Scene::new(config(), 8);
    scene.run_alone(1, 8, 100);
    scene.again(2, 1, 8, 1, 0);
    scene.drain();
    scene.run_alone(3, 8, 50);
    scene.take(with_retention(4, 20, 1, 50));
    scene.plan();
    assert!(scene.cached(1) < 8, "it goes before 50");
    assert_eq!(scene.cached(3), 8);
}

#[test]
fn a_flush_frees_what_only_the_cache_holds() {
    let mut scene = Scene::new(config(), 32);
    scene.run_alone(1, 10, 35);
    assert_eq!(scene.cached(1), 10);
    scene.submit(2, 10, 20);
    scene.step();
    let before = scene.scheduler.stats();
    assert_eq!((before.cached_blocks, before.owned_blocks), (3, 3));
    assert_eq!(scene.scheduler.flush_cache(scene.now), 3);
    scene.scheduler.audit();
    assert_eq!(scene.scheduler.flush_cache(scene.now), 0);
    let after = scene.scheduler.stats();
    assert_eq!((after.cached_blocks, after.owned_blocks), (0, 3));
    assert_eq!((scene.cached(1), scene.cached(2)), (0, 0));
    // What it publishes from now on is not found either, and free when it ends.
    for _ in 0..9 {
        scene.step();
    }
    assert_eq!(scene.cached(2), 0);
    scene.again(3, 2, 9, 30, 35);
    let plan = scene.plan();
    assert_eq!(plan.new_sequences[0].computed_length, 0);
    scene.answer(&plan, 9);
    assert_eq!(scene.cached(2), 8, "the new one's");
    scene.cancel(2);
    let stats = scene.scheduler.stats();
    assert_eq!((stats.running, stats.cached_blocks), (1, 0));
    scene.cancel(3);
    assert_eq!(scene.scheduler.stats().cached_blocks, 3);
    scene.drain();
    assert_eq!(scene.scheduler.stats().owned_blocks, 0);
}

#[test]
fn nobody_waits_for_blocks_of_a_flushed_cache() {
    let config = SchedulerConfig {
        max_steps_in_flight: 2,
        ..config()
    };
    let mut scene = Scene::new(config, 32);
    scene.submit(1, 20, 9);
    let first = scene.plan();
    scene.scheduler.flush_cache(scene.now);
    // The first prompt is under way, and it is what the second one needs.
    scene.again(2, 1, 20, 1, 35);
    let plan = scene.plan();
    assert_eq!(plan.new_sequences.len(), 1, "it waits for nothing");
    assert_eq!(plan.new_sequences[0].computed_length, 0);
    scene.answer(&first, 9);
    scene.answer(&plan, 9);
    // Both have 20 ids now, the second in the tree that is read; the first goes on with 9s.
    let mut prompt = request(1, 20, 1).prompt.to_vec();
    prompt.extend([9; 8]);
    scene.take(SequenceRequest {
        prompt: Arc::from(prompt),
        ..request(3, 28, 1)
    });
    assert_eq!(scene.plan().new_sequences[0].computed_length, 20);
}

/// The same prompt twice: the second one waits only where it will be given the blocks of the first.
#[test]
fn nobody_waits_for_blocks_that_are_not_shared() {
    let five = Duration::from_secs(5);
    for (prefix_caching, share_prefixes, rows) in
        [(true, five, 1), (true, Duration::ZERO, 2), (false, five, 2)]
    {
        let mut bounds = SchedulerConfig {
            prefix_caching,
            ..config()
        };
        bounds.policy.share_prefixes = share_prefixes;
        let mut scene = Scene::new(bounds, 64);
        scene.submit(1, 20, 3);
        scene.again(2, 1, 20, 3, 35);
        let (first, second) = (scene.step(), scene.step());
        assert_eq!(first.len(), rows, "{prefix_caching}, {share_prefixes:?}");
        assert_eq!(second.len(), 2);
    }
}

#[test]
fn a_cancelled_sequence_leaves_its_partial_tail() {
    let mut scene = Scene::new(config(), 32);
    scene.submit(1, 6, 20);
    scene.step();
    scene.cancel(1);
    assert_eq!(scene.cached(1), 6);
    // Copied, so that only the last id is computed again.
    scene.again(2, 1, 6, 1, 35);
    let plan = scene.plan();
    assert_eq!(plan.new_sequences[0].computed_length, 5);
    assert_eq!(plan.block_copies[0].num_tokens, 1);
}

#[test]
fn a_preempted_sequence_comes_back_to_what_is_left_of_its_blocks() {
    let mut scene = Scene::new(config(), 7);
    scene.submit(1, 11, 8);
    scene.submit(2, 13, 8);
    // Three blocks and four; after twelve tokens the first needs one more.
    while scene.scheduler.stats().preemptions == 0 {
        scene.step();
    }
    assert_eq!(scene.cached(2), 12);
    scene.cancel(1);
    let plan = scene.plan();
    assert_eq!(plan.new_sequences[0].computed_length, 12);
    scene.answer(&plan, 9);
    scene.drain();
    assert_eq!(scene.ended[&2], None);
}

/// Prompt logprobs keep a sequence from the cache only until they are told.
#[test]
fn told_prompt_logprobs_are_not_computed_again() {
    let mut scene = Scene::new(config(), 8);
    scene.submit(1, 9, 8);
    scene.take(SequenceRequest {
        prompt_logprobs: true,
        ..request(2, 13, 8)
    });
    let plan = scene.plan();
    let mut results = Scene::results(&plan, 9);
    for (row, result) in plan.rows.iter().zip(&mut results) {
        if row.prompt_logprobs {
            result.prompt_logprobs = (201..213).map(token).collect();
        }
    }
    scene.try_complete(&plan, StepOutcome::Ok(results)).unwrap();
    // Three and four blocks of eight: after 12 and 16 tokens both need one more.
    while scene.scheduler.stats().preemptions == 0 {
        scene.step();
    }
    scene.cancel(1);
    let plan = scene.plan();
    assert_eq!(plan.new_sequences[0].computed_length, 16);
    assert!(!plan.rows[0].prompt_logprobs);
    scene.answer(&plan, 9);
    scene.drain();
    assert_eq!(scene.ended[&2], None);
}
