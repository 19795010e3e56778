//! What workers do: start, answer, fail, hang, die, and speak after their death.

use super::{
    Duration, Fault, Group, GroupDescription, GroupFacts, GroupId, Input, Progress, StartFailure,
    StepOutcome, StepReport, StepResult, StepTimings, ToRouter, VOCAB, Worker, World,
};

impl World {
    /// The launcher's and the start's next moves.
    pub(super) fn advance_group(&mut self) {
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
    pub(super) fn die(&mut self) {
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
    pub(super) fn hang(&mut self) {
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
    pub(super) fn watchdog(&mut self) {
        let was_up = matches!(self.group, Group::Up { .. });
        let quietest = was_up.then_some((0, self.heard));
        self.feed(Input::Tick { quietest });
        let is_up = matches!(self.group, Group::Up { .. });
        assert!(
            self.hung || was_up == is_up || self.end.is_some(),
            "the watchdog ends a group that answers"
        );
    }

    pub(super) fn fault(&mut self) -> Fault {
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
    pub(super) fn is_deadly(&self) -> bool {
        let Group::Up { worker, .. } = &self.group else {
            return false;
        };
        let oldest = worker.oldest();
        oldest.iter().any(|id| self.clients[id].poison)
    }

    pub(super) fn answer(&mut self, fault: Fault, double: usize) {
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
    pub(super) fn late_answer(&mut self) {
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

    pub(super) fn lose_for_good(&mut self) {
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

    /// What workers do in a tick.
    pub(super) fn work(&mut self) {
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
