//! One seed: a random world, faults for a while, then calm until everything open has ended, then a drain.

use crate::client::{Client, End, Hold, Reader};
use crate::launcher::Launcher;
use crate::random::{Random, mix};
use crate::totals::Totals;
use crate::worker::{Fault, VOCAB, Worker};
use futures::FutureExt;
use headrace_control::{Progress, ToRouter};
use headrace_router::engine::core::{
    Effect, EngineCore, EngineEnd, GroupFacts, Input, StartFailure,
};
use headrace_router::engine::{
    CommandQueue, DeskOrder, EngineConfig, EngineHandle, Interruption, MaskDesk, SubmitFailure,
};
use headrace_router::metrics::Metrics;
use headrace_scheduler::{
    GroupId, SamplingParams, SequenceFailure, SequenceId, SequenceRequest, StepOutcome, StepResult,
    StopConditions, SubmitError, Time, TokenId,
};
use headrace_worker_client::{GroupDescription, StepReport, StepTimings};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

mod setup;

/// The workers, as they are and not as the engine sees them.
enum Group {
    Down,
    Starting { epoch: u64, at: Time },
    Up { epoch: u64, worker: Box<Worker> },
}

/// Chances in a hundred, a tick.
struct Chances {
    arrive: usize,
    leave: usize,
    answer: usize,
    step_fault: usize,
    row_fault: usize,
    death: usize,
    hang: usize,
    double: usize,
    failed_start: usize,
    drain: usize,
    flush: usize,
    jump: usize,
    poison: usize,
    final_loss: usize,
}

struct World {
    random: Random,
    config: EngineConfig,
    num_blocks: u32,
    chances: Chances,
    core: EngineCore,
    handle: EngineHandle,
    commands: CommandQueue,
    launcher: Launcher,
    desk: MaskDesk,
    /// What the desk has not looked at yet.
    orders: VecDeque<DeskOrder>,
    group: Group,
    /// Workers of dead starts that may still have something to say.
    stale: Vec<(u64, Worker)>,
    clients: BTreeMap<SequenceId, Client>,
    /// Those whose leaving the engine has heard of: no new step names them.
    forgotten: BTreeSet<SequenceId>,
    /// Nothing answers.
    hung: bool,
    /// The workers' last message.
    heard: Time,
    /// Long outputs, so that buffers fill.
    long: bool,
    draining: Option<Time>,
    lost: bool,
    end: Option<EngineEnd>,
    now: Time,
    totals: Totals,
    trace: u64,
}

pub(crate) fn run(seed: u64) -> Totals {
    let mut world = World::new(seed);
    let busy = if world.long {
        world.random.between(400, 900)
    } else {
        world.random.between(20, 150)
    };
    for _ in 0..busy {
        world.tick();
        if world.end.is_some() {
            break;
        }
    }
    world.calm();
    let mut totals = world.totals;
    totals.trace = world.trace;
    totals
}

impl World {
    fn tick(&mut self) {
        let micros = self.random.next() % 2000;
        self.pass(Duration::from_micros(micros));
        self.advance_group();
        if self.random.percent(self.chances.arrive) {
            self.arrive();
        }
        if self.random.percent(self.chances.leave) {
            self.leave();
        }
        if self.random.percent(80) {
            self.feed_commands();
        }
        self.read(false);
        if self.draining.is_none() && self.random.percent(self.chances.drain) {
            self.drain();
        }
        if self.random.percent(self.chances.final_loss) && !self.lost {
            self.lose_for_good();
        }
        if self.random.percent(10) {
            self.late_answer();
        }
        if self.random.percent(self.chances.flush) {
            self.totals.flushes += 1;
            // The answer comes with a later turn; nobody waits for it here.
            let _ = self.handle.flush_cache().now_or_never();
        }
        if self.random.percent(self.chances.jump) && !self.hung {
            // Long enough for who reads nothing; the workers were heard meanwhile.
            self.pass(Duration::from_millis(1500));
            self.heard = self.now;
            self.watchdog();
        }
        let orders = self.random.between(0, 4);
        self.serve_desk(orders);
        self.work();
        if self.random.percent(20) {
            self.watchdog();
        }
        self.check();
    }

    /// What workers do in a tick.
    fn work(&mut self) {
        if !matches!(self.group, Group::Up { .. }) {
            return;
        }
        if self.random.percent(self.chances.death) {
            self.die();
        } else if self.hung || self.random.percent(self.chances.hang) {
            self.hang();
        } else if self.random.percent(self.chances.answer) {
            let fault = self.fault();
            self.answer(fault, self.chances.double);
        }
    }

    /// No faults, no arrivals, every reader reads: what is open ends within a bound; then a drain ends the engine.
    #[expect(clippy::too_many_lines, reason = "one phase after the other")]
    fn calm(&mut self) {
        self.chances.failed_start = 0;
        self.hung = false;
        self.stale.clear();
        if self.long && self.random.percent(50) && self.end.is_none() {
            // Nobody reads for longer than readers may stall.
            for _ in 0..2 {
                self.pass(Duration::from_millis(3500));
                self.heard = self.now;
                self.watchdog();
            }
            assert_eq!(
                self.core.status().stats.paused,
                0,
                "a stalled reader is kept"
            );
        }
        let mut poisons = 0;
        for client in self
            .clients
            .values_mut()
            .filter(|client| client.is_open() && client.poison)
        {
            // While a server drains, deaths make no suspects: only the grace time ends such a request.
            if self.draining.is_some() {
                client.leave();
            }
            poisons += 1;
        }
        if !self.lost && self.end.is_none() {
            let open = self.clients.values().filter(|client| client.is_open());
            let work: usize = open.map(Client::work).sum();
            let mut bound = 400 + 8 * work + 4000 * poisons;
            while self.is_busy() && self.end.is_none() {
                assert!(
                    bound > 0,
                    "no end after a bound of {work} tokens of work: {}",
                    self.standing()
                );
                bound -= 1;
                self.pass(Duration::from_millis(1));
                self.advance_group();
                self.feed_commands();
                self.read(true);
                self.serve_desk(usize::MAX);
                if matches!(self.group, Group::Up { .. }) {
                    self.answer(Fault::None, 0);
                }
                self.watchdog();
                self.check();
            }
        }
        self.feed_commands();
        self.read(true);
        if self.end.is_none() {
            self.serve_desk(usize::MAX);
            self.check_empty();
            if self.draining.is_none() {
                self.drain();
            }
            self.feed_commands();
            assert_eq!(
                self.end,
                Some(EngineEnd::Drained),
                "nothing is open and the drain goes on"
            );
        }
        for client in self.clients.values() {
            assert!(!client.is_open(), "{:?} never ends", client.request.id);
        }
        self.serve_desk(usize::MAX);
        assert_eq!(self.desk.len(), 0, "the mask desk keeps what is over");
        let left = self.core.scheduler().unwrap().stats();
        assert_eq!(
            left.running + left.waiting,
            0,
            "ended, and something goes on"
        );
        self.arrive();
        while let Some(command) = self.commands.try_next() {
            self.core.take(self.now, Input::Command(command));
        }
        self.read(true);
        let last = self.clients.values().next_back();
        let refused = last.and_then(|client| client.end.clone());
        assert!(matches!(
            refused,
            Some(End::Refused(
                SubmitFailure::Draining | SubmitFailure::NotReady
            ))
        ));
        self.count_ends();
    }

    /// For a failure's message: what is open, and where the workers are.
    fn standing(&self) -> String {
        let open = self.clients.values().filter(|client| client.is_open());
        let open: Vec<String> = open
            .map(|client| format!("{:?} heard {}", client.request.id, client.heard()))
            .collect();
        let group = match &self.group {
            Group::Down => "down".to_owned(),
            Group::Starting { epoch, at } => format!("starting {epoch} until {at:?}"),
            Group::Up { worker, .. } => format!(
                "up with {} steps, {:?}, masks {}",
                worker.steps_in_flight(),
                worker.oldest(),
                worker.has_masks()
            ),
        };
        let stats = self
            .core
            .scheduler()
            .map(headrace_scheduler::Scheduler::stats);
        format!(
            "now {:?}, {open:?}, {group}, {stats:?}, {:?}",
            self.now,
            self.core.status().stats
        )
    }

    fn is_busy(&self) -> bool {
        let idle = self
            .core
            .scheduler()
            .is_some_and(headrace_scheduler::Scheduler::is_idle);
        !idle || self.clients.values().any(Client::is_open)
    }

    fn check_empty(&self) {
        if self.lost {
            return;
        }
        let stats = self.core.scheduler().unwrap().stats();
        assert_eq!((stats.running, stats.waiting, stats.ending), (0, 0, 0));
        assert_eq!(stats.owned_blocks, 0, "blocks are lost");
        assert_eq!(self.core.status().stats.open_streams, 0, "streams are lost");
        assert_eq!(self.desk.len(), 0, "the mask desk keeps what is over");
    }

    fn count_ends(&mut self) {
        for client in self.clients.values() {
            if let Some(End::Refused(refusal)) = &client.end {
                assert!(self.is_due(client, refusal), "{refusal:?}");
            }
            let count = match client.end.as_ref().unwrap() {
                End::Finished => &mut self.totals.finished,
                End::Failed(SequenceFailure::WorkerCrash) => &mut self.totals.crashed,
                End::Failed(_) => &mut self.totals.failed,
                End::Stuck => &mut self.totals.dead_ends,
                End::Interrupted(Interruption::Stalled) => &mut self.totals.stalled,
                End::Interrupted(_) => &mut self.totals.interrupted,
                End::Refused(_) => &mut self.totals.refused,
                End::Left => continue,
            };
            *count += 1;
            self.totals.resumed += u64::from(client.end == Some(End::Finished) && client.resumed);
        }
        if let Some(scheduler) = self.core.scheduler() {
            let stats = scheduler.stats();
            self.totals.preemptions += stats.preemptions;
            self.totals.hits += stats.prefix_hit_tokens;
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now.0 += time;
    }

    /// One input, as the engine's loop does it.
    fn feed(&mut self, input: Input) {
        if self.end.is_some() {
            return;
        }
        self.core.take(self.now, input);
        self.turn();
    }

    /// The rest of a turn of the engine's loop.
    fn turn(&mut self) {
        self.core.plan(self.now);
        self.act();
        self.core.tell(self.now);
        self.act();
    }

    fn feed_commands(&mut self) {
        let mut any = false;
        while let Some(command) = self.commands.try_next() {
            if self.end.is_some() {
                continue;
            }
            any = true;
            self.core.take(self.now, Input::Command(command));
        }
        if any {
            let left = self
                .clients
                .iter()
                .filter(|(_, client)| client.end == Some(End::Left));
            self.forgotten.extend(left.map(|(&id, _)| id));
            self.turn();
        }
    }

    fn act(&mut self) {
        while let Some(effect) = self.core.next_effect() {
            assert!(self.end.is_none(), "{effect:?} after the end");
            match effect {
                Effect::StartGroup { epoch, request, .. } => {
                    assert_eq!((epoch, request.epoch), (self.launcher.epoch, epoch));
                    let wait = Duration::from_micros(self.random.next() % 5000);
                    self.group = Group::Starting {
                        epoch,
                        at: Time(self.now.0 + wait),
                    };
                }
                Effect::SendStep(plan) => self.send(plan),
                Effect::Desk(order) => self.orders.push_back(order),
                Effect::SendMask {
                    step_id,
                    slot,
                    position,
                    mask,
                } => {
                    self.totals.masks_sent += 1;
                    self.worker().mask(step_id, slot, Some((position, mask)));
                }
                Effect::CallOff { step_id, slot } => {
                    self.totals.masks_called_off += 1;
                    self.worker().mask(step_id, slot, None);
                }
                Effect::DropGroup => self.drop_group(),
                Effect::ToLauncher(message) => {
                    if self.launcher.hear(self.now, &message) {
                        self.hung = false;
                    }
                }
                Effect::End(end) => {
                    assert!(self.draining.is_some(), "an end that nobody asked for");
                    self.end = Some(end);
                }
            }
        }
    }

    fn worker(&mut self) -> &mut Worker {
        match &mut self.group {
            Group::Up { worker, .. } => worker,
            _ => panic!("a message for a group that is not up"),
        }
    }

    /// The desk looks at some of its orders, and the engine at its answers.
    fn serve_desk(&mut self, most: usize) {
        for _ in 0..most {
            let Some(order) = self.orders.pop_front() else {
                return;
            };
            for ready in self.desk.take(order) {
                self.feed(Input::Mask(ready));
            }
        }
    }

    fn send(&mut self, plan: headrace_scheduler::StepPlan) {
        self.totals.steps += 1;
        self.trace = mix(self.trace, plan.step_id);
        for row in &plan.rows {
            self.trace = mix(
                self.trace,
                u64::from(row.slot) << 32 | u64::from(row.num_tokens),
            );
        }
        let Group::Up { worker, .. } = &mut self.group else {
            panic!("a step for a group that is not up");
        };
        for id in worker.send(plan) {
            assert!(
                !self.forgotten.contains(&id),
                "{id:?} left and is in a new step"
            );
        }
        let most = self.config.max_steps_in_flight as usize;
        assert!(worker.steps_in_flight() <= most, "too many steps in flight");
    }

    fn drop_group(&mut self) {
        if let Group::Up { epoch, worker } = std::mem::replace(&mut self.group, Group::Down) {
            self.note_death(&worker);
            if self.stale.len() < 3 {
                self.stale.push((epoch, *worker));
            }
        }
    }

    /// Those that had begun go on in the next start; who was alone in the steps is under suspicion.
    fn note_death(&mut self, worker: &Worker) {
        for id in worker.in_flight() {
            if let Some(client) = self.clients.get_mut(&id) {
                client.deaths += 1;
            }
        }
        for client in self.clients.values_mut() {
            if client.is_open() && client.heard() > 0 {
                client.resumed = true;
            }
        }
    }

    /// The launcher's and the start's next moves.
    fn advance_group(&mut self) {
        if self.lost {
            return;
        }
        if let Some(message) = self.launcher.start(self.now) {
            self.feed(Input::Control(message));
        }
        let Group::Starting { epoch, at } = self.group else {
            return;
        };
        if self.random.percent(30) {
            let progress = Progress {
                stage: "weights".to_owned(),
                done: self.random.next() % 10,
                total: 10,
                unit: "bytes".to_owned(),
            };
            self.feed(Input::Progress { epoch, progress });
        }
        if self.now < at {
            return;
        }
        if self.random.percent(self.chances.failed_start) {
            self.totals.failed_starts += 1;
            let failure = StartFailure {
                cause: "scripted".to_owned(),
                is_final: false,
            };
            self.group = Group::Down;
            self.feed(Input::Started {
                epoch,
                outcome: Err(failure),
            });
            assert!(
                self.launcher.is_starting(),
                "a failed start is not tried again"
            );
            return;
        }
        let worker = Worker::new(
            self.config.block_size,
            self.num_blocks,
            self.config.max_batch_tokens,
            self.config.max_sequences,
        );
        self.group = Group::Up {
            epoch,
            worker: Box::new(worker),
        };
        self.heard = self.now;
        let facts = GroupFacts {
            description: GroupDescription {
                world_size: 1,
                device: "cpu".to_owned(),
                compute_dtype: "float32".to_owned(),
                vocab_size: VOCAB,
                max_position_embeddings: 4096,
                max_steps_in_flight: self.config.max_steps_in_flight,
                kernel_set: "none".to_owned(),
                attention_backend: "none".to_owned(),
                prompt_logprobs: true,
            },
            num_blocks: self.num_blocks,
            prepared_blocks: self.num_blocks,
        };
        self.feed(Input::Started {
            epoch,
            outcome: Ok(facts),
        });
    }

    /// The process ends: the stream breaks, the launcher says so, in either order.
    fn die(&mut self) {
        let Group::Up { epoch, .. } = self.group else {
            return;
        };
        self.totals.deaths += 1;
        self.hung = false;
        let broken = Input::Broken {
            epoch,
            cause: "it is closed".to_owned(),
        };
        let down = Input::Control(ToRouter::GroupDown {
            group: 0,
            cause: "killed by signal 9".to_owned(),
            is_final: false,
        });
        self.launcher.restart_at(self.now);
        match self.random.between(0, 2) {
            0 => {
                self.totals.broken_streams += 1;
                self.feed(broken);
                self.feed(down);
            }
            1 => {
                self.feed(down);
                self.feed(broken);
            }
            _ => self.feed(down),
        }
        assert!(self.end.is_some() || matches!(self.group, Group::Down));
    }

    /// Nothing answers until the watchdog ends it; it must not take longer than its bounds.
    fn hang(&mut self) {
        self.hung = true;
        if self.random.percent(60) {
            return;
        }
        self.totals.hangs += 1;
        let has_steps =
            matches!(&self.group, Group::Up { worker, .. } if worker.steps_in_flight() > 0);
        // Silence, or heartbeats of a rank whose step never ends.
        let beats = has_steps && self.random.percent(50);
        for _ in 0..500 {
            if !matches!(self.group, Group::Up { .. }) || self.end.is_some() {
                return;
            }
            self.pass(Duration::from_millis(500));
            if beats {
                self.heard = self.now;
            }
            self.feed_commands();
            self.read(false);
            self.feed(Input::Tick {
                quietest: Some((0, self.heard)),
            });
            self.check();
        }
        panic!("the watchdog sleeps");
    }

    /// A look of the watchdog. At a group that answers it changes nothing.
    fn watchdog(&mut self) {
        let was_up = matches!(self.group, Group::Up { .. });
        let quietest = was_up.then_some((0, self.heard));
        self.feed(Input::Tick { quietest });
        let is_up = matches!(self.group, Group::Up { .. });
        assert!(
            self.hung || was_up == is_up || self.end.is_some(),
            "the watchdog ends a group that answers"
        );
    }

    fn fault(&mut self) -> Fault {
        let Group::Up { worker, .. } = &self.group else {
            return Fault::None;
        };
        let rows = worker.rows();
        if self.random.percent(self.chances.step_fault) {
            self.random.pick(&[Fault::Failed, Fault::OutOfMemory])
        } else if rows > 0 && self.random.percent(self.chances.row_fault) {
            let row = self.random.between(0, rows - 1);
            self.random.pick(&[Fault::NonFinite(row), Fault::Row(row)])
        } else {
            Fault::None
        }
    }

    /// Whether the oldest step has one that ends the worker.
    fn is_deadly(&self) -> bool {
        let Group::Up { worker, .. } = &self.group else {
            return false;
        };
        let oldest = worker.oldest();
        oldest.iter().any(|id| self.clients[id].poison)
    }

    fn answer(&mut self, fault: Fault, double: usize) {
        if self.is_deadly() {
            self.die();
            return;
        }
        let Group::Up { epoch, worker } = &mut self.group else {
            return;
        };
        let epoch = *epoch;
        self.heard = self.now;
        let fails = matches!(fault, Fault::Failed | Fault::OutOfMemory);
        if worker.steps_in_flight() == 0 || !(fails || worker.has_masks()) {
            return;
        }
        let (step_id, outcome, whose) = worker.answer(fault);
        match &outcome {
            StepOutcome::Failed(_) | StepOutcome::OutOfMemory(_) => self.totals.step_failures += 1,
            StepOutcome::Skipped => self.totals.skipped += 1,
            StepOutcome::Ok(_) => {}
        }
        for (at, id) in whose.iter().enumerate() {
            let Some(client) = self.clients.get_mut(id) else {
                continue;
            };
            match &outcome {
                StepOutcome::Ok(_) => {
                    client.causes.non_finite |= fault == Fault::NonFinite(at);
                    self.totals.non_finite += u64::from(fault == Fault::NonFinite(at));
                    self.totals.row_failures += u64::from(fault == Fault::Row(at));
                    client.causes.refused_row |= fault == Fault::Row(at);
                    client.lost_steps = 0;
                }
                StepOutcome::Failed(_) | StepOutcome::OutOfMemory(_) => {
                    client.lost_steps += 1;
                    client.causes.failed_alone |= whose.len() == 1 && client.lost_steps > 1;
                }
                StepOutcome::Skipped => {}
            }
        }
        let report = report(step_id, outcome);
        let again = (self.random.percent(double)).then(|| report.clone());
        self.feed(Input::Answer {
            epoch,
            report: Box::new(report),
        });
        if let Some(again) = again {
            // The worker breaks the protocol: the group goes, nobody hears anything twice.
            self.totals.double_answers += 1;
            self.feed(Input::Answer {
                epoch,
                report: Box::new(again),
            });
            assert!(self.end.is_some() || matches!(self.group, Group::Down));
        }
    }

    /// What a dead start had still to say changes nothing.
    fn late_answer(&mut self) {
        let Some((epoch, worker)) = self.stale.last_mut() else {
            return;
        };
        if !worker.has_masks() {
            self.stale.pop();
            return;
        }
        let epoch = *epoch;
        let (step_id, outcome, _) = worker.answer(Fault::None);
        if self.end.is_some() {
            return;
        }
        self.totals.late_answers += 1;
        let before = self
            .core
            .scheduler()
            .map(headrace_scheduler::Scheduler::stats);
        let input = if self.random.percent(70) {
            Input::Answer {
                epoch,
                report: Box::new(report(step_id, outcome)),
            }
        } else {
            Input::Broken {
                epoch,
                cause: "late".to_owned(),
            }
        };
        self.core.take(self.now, input);
        let after = self
            .core
            .scheduler()
            .map(headrace_scheduler::Scheduler::stats);
        assert_eq!(before, after, "a dead start changes the books");
        self.turn();
    }

    fn lose_for_good(&mut self) {
        self.lost = true;
        for client in self.clients.values_mut() {
            client.causes.group_lost = true;
        }
        self.feed(Input::Control(ToRouter::GroupDown {
            group: 0,
            cause: "the restarts are spent".to_owned(),
            is_final: true,
        }));
        self.group = Group::Down;
    }

    fn drain(&mut self) {
        let grace = self.random.pick(&[0, 1, 1, 1000]);
        self.totals.drains += 1;
        self.totals.drains_cut += u64::from(grace < 1000);
        self.draining = Some(Time(self.now.0 + Duration::from_secs(grace)));
        self.feed(Input::Control(ToRouter::Drain {
            grace_seconds: grace,
        }));
        if self.random.percent(30) {
            self.feed(Input::Control(ToRouter::Drain { grace_seconds: 0 }));
        }
    }

    fn leave(&mut self) {
        let open: Vec<SequenceId> = self
            .clients
            .iter()
            .filter(|(_, client)| client.is_open())
            .map(|(&id, _)| id)
            .collect();
        let Some(last) = open.len().checked_sub(1) else {
            return;
        };
        let id = open[self.random.between(0, last)];
        let client = self.clients.get_mut(&id).unwrap();
        match (&client.hold, client.started) {
            (Hold::Asked(_), _) | (_, false) => self.totals.left_queued += 1,
            _ if client.heard() + 1 >= client.work() - client.request.prompt.len() => {
                self.totals.left_late += 1;
            }
            _ => self.totals.left_running += 1,
        }
        client.leave();
    }

    fn read(&mut self, all: bool) {
        let cut = self.draining.is_some_and(|deadline| deadline <= self.now);
        for client in self.clients.values_mut() {
            client.causes.drain_cut |= cut;
            client.causes.group_lost |= self.lost;
            if matches!(client.hold, Hold::Asked(_)) {
                client.settle();
            }
            let most = match client.reader {
                _ if all => usize::MAX,
                Reader::Prompt => usize::MAX,
                Reader::Slow => usize::from(self.random.percent(30)),
                Reader::Stalled => 0,
            };
            let count = client.read(self.now, most);
            self.totals.paused += u64::from(count > 100);
            // A buffer is paused at 128; then only steps in flight add to it.
            assert!(count <= 140, "{count} events in a buffer");
            self.trace = mix(self.trace, count as u64);
        }
    }

    /// What must hold at every moment.
    fn check(&self) {
        let Some(scheduler) = self.core.scheduler() else {
            return;
        };
        scheduler.audit();
        let stats = scheduler.stats();
        assert_eq!(
            stats.free_blocks + stats.owned_blocks + stats.cached_blocks,
            stats.total_blocks
        );
        assert!(stats.running <= self.config.max_sequences as usize);
        let told = self.core.status();
        assert_eq!(told.draining, self.draining.is_some());
        if self.end.is_some() {
            return;
        }
        let Group::Up { worker, .. } = &self.group else {
            assert_eq!(stats.total_blocks, 0, "a dead group has blocks");
            return;
        };
        assert!(told.ready || told.draining || !told.was_ready);
        let paused = usize::try_from(told.stats.paused).unwrap();
        let has_work = stats.running + stats.waiting > paused;
        assert!(
            worker.steps_in_flight() > 0 || !has_work,
            "work and capacity exist, and nothing is sent: {stats:?}"
        );
    }
}

fn report(step_id: u64, outcome: StepOutcome) -> StepReport {
    StepReport {
        result: StepResult {
            group: GroupId(0),
            step_id,
            outcome,
        },
        timings: StepTimings::default(),
    }
}
