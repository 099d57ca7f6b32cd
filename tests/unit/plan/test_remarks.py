"""What planning tells people: each cause once, with all that it is about."""

from __future__ import annotations

from kernel_builder.plan.remarks import Remarks


def test_a_cause_is_told_once_with_all_that_it_is_about() -> None:
    remarks = Remarks()
    for source in ("a.cpp", "b.cu", "a.cpp"):
        for standard in ("C++17", "C++20"):
            remarks.warn("{sources}: raised to {standards}", sources=source, standards=standard)
    remarks.note("{toolkits}", toolkits="one builds for 8.0, 9.0")
    remarks.note("{toolkits}", toolkits="two builds for 9.0")
    remarks.note("nothing {to} fill")
    remarks.note("nothing {to} fill")
    assert remarks.warnings == ("a.cpp, b.cu: raised to C++17, C++20",)
    assert remarks.notes == ("one builds for 8.0, 9.0; two builds for 9.0", "nothing {to} fill")
