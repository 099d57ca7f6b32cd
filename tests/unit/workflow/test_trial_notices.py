"""What people are told while they work on a kernel."""

from __future__ import annotations

from kernel_builder.events import Event, Notice
from kernel_builder.workflow.testing import Unpublished


class Recorder:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def emit(self, event: Event, /) -> None:
        self.events.append(event)


def test_what_matters_to_publishing_alone_is_not_told_at_each_test() -> None:
    recorder = Recorder()
    reporter = Unpublished(recorder)
    told = Notice(message="objects go elsewhere", warning=True)
    for event in (Notice(message="the kernel is marked dirty", warning=True, publishing=True), told):
        reporter.emit(event)
    assert recorder.events == [told]
