"""Programs that the agent runs on its machine."""

from __future__ import annotations

import os

from skyplane_orchestration.provision.ssh.programs import Programs


def ended(programs: Programs, number: int) -> list[object]:
    while (answer := programs.end_of_program(number)) is None:
        pass
    return answer


def test_a_program_is_run_to_its_end() -> None:
    programs = Programs()
    script = "echo out; echo said >&2; exit 3"
    assert ended(programs, programs.begin_program(["sh", "-c", script], 60.0)) == [
        *(3, "out\n", "said\n")
    ]


def test_a_program_that_hangs_is_killed_with_its_children() -> None:
    programs = Programs()
    number = programs.begin_program(["sh", "-c", "echo begun; sleep 600; :"], 0.2)
    status, _, errors = ended(programs, number)
    assert status != 0
    assert "did not end in time" in str(errors)
    while group_lives(number):
        pass


def group_lives(number: int) -> bool:
    try:
        os.killpg(number, 0)
    except ProcessLookupError:
        return False
    return True


def test_programs_are_looked_for_on_the_path() -> None:
    assert Programs().program_path("sh").endswith("/sh")
    assert Programs().program_path("no-such-program") == ""


def test_the_account_is_that_of_the_process() -> None:
    account = Programs().account()
    assert (account["user"], account["group"]) == (os.geteuid(), os.getegid())
