"""One tiny checkpoint for all worker tests, and workers that never outlive a test."""

import pytest
from worker_client import Worker, make_checkpoint


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    """(transformers model, document path)."""
    return make_checkpoint(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture
def start(tmp_path):
    """Starts workers; kills what is left."""
    workers = []

    def start_worker(document, **options):
        worker = Worker(document, tmp_path, **options)
        workers.append(worker)
        return worker

    yield start_worker
    for worker in workers:
        worker.close()


@pytest.fixture(scope="module")
def ready(checkpoint, tmp_path_factory):
    """A prepared worker that tests of one module share; each opens a stream of its own."""
    worker = Worker(checkpoint[1], tmp_path_factory.mktemp("ready"))
    worker.prepare()
    yield worker
    worker.close()
