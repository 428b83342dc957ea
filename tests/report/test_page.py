"""The page about a task: what stands there, and that nothing there is taken for HTML."""

from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
from tests.provision.samples import make_plan
from tests.transfer import samples

from skyplane_orchestration.lineage.facts import transfer_facts
from skyplane_orchestration.model.fleet import Fleet, FleetInstance
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.result import EdgeOutcome, FailedObject, TransferResult
from skyplane_orchestration.report.page import report_page
from skyplane_orchestration.report.task_documents import PlanInPlace, TaskDocuments, documents_of

A, B = "aws:us-east-1", "azure:westeurope"
PLAN = replace(make_plan([((A, B), 2.0)], {A: 2, B: 2}), notes=("a price was never verified",))
ATTACK = '"><script>alert(1)</script><img src=x onerror=alert(1)>'


class Reader(HTMLParser):
    """Collects the elements with their attributes, and the text by section."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.sections: dict[str, str] = {}
        self._section = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "section":
            self._section = dict(attrs)["id"] or ""

    def handle_data(self, data: str) -> None:
        self.sections[self._section] = self.sections.get(self._section, "") + data + " "

    @property
    def links(self) -> list[str | None]:
        return [attributes.get("href") for tag, attributes in self.elements if tag == "a"]


def page_of(returned: Any = None, **more: Any) -> Reader:
    """The page about a task that has returned a document, and left `more` under other names."""
    return Reader(report_page("a task", documents_of({"return_value": returned, **more})))


def fleet(**changes: Any) -> Fleet:
    return samples.fleet_of("ab", plan=PLAN, provisioner="cloud", **changes)


def test_a_plan_is_a_picture_and_tables() -> None:
    page = page_of(PLAN.to_dict())
    assert "svg" in [tag for tag, _ in page.elements]
    assert set(page.sections) >= {"plan"}
    for words in (f"{A} to {B}", "2.00 Gbit/s", "a price was never verified"):
        assert words in page.sections["plan"]


def test_a_fleet_shows_its_plan_instances_and_consoles_but_no_address() -> None:
    document = fleet(
        instances=(FleetInstance(f"{A}/0", A, "i-0123", 1.0),),
        console_urls={A: "https://console.test/#Instances:a=b;c&d"},
    ).to_dict()
    page = page_of(document)
    assert "2.00 Gbit/s" in page.sections["plan"]
    assert "i-0123" in page.sections["fleet"]
    assert page.links == ["https://console.test/#Instances:a=b;c&d"]
    assert "127.0.0.1" not in "".join(page.sections.values())


def test_a_console_is_a_link_of_the_web_only() -> None:
    page = page_of(fleet(console_urls={A: "javascript:alert(1)"}).to_dict())
    assert page.links == []


def test_a_result_shows_the_rates_of_its_edges_and_the_cost() -> None:
    edges = (EdgeOutcome(A, B, 2.0, 1.25, 1000, 3.5, 1.75),)
    result = samples.result(edges=edges, estimated_usd=4.5, warnings=("an upload stays open",))
    shown = page_of(result.to_dict()).sections["transfer"]
    for words in ("succeeded", "30 (1000 B)", "$6.00", "$4.50", "stays open"):
        assert words in shown
    for gbps in ("3.50", "1.75", "2.00", "1.25"):
        assert gbps in shown


def test_a_failed_transfer_names_its_objects_and_how_many_more_there_are() -> None:
    failed = samples.result(failed=12, error="12 objects failed", resume_handle="resume-me")
    failed = replace(failed, failures=failed.failures[:10])
    page = page_of(failed_transfer=failed.to_dict())
    assert "s3://src/p/9" in page.sections["transfer"]
    assert "2 more objects failed" in page.sections["transfer"]
    assert "resume-me" not in "".join(page.sections.values())


def test_a_success_counts_more_than_the_failure_of_an_earlier_try() -> None:
    documents = documents_of(
        {
            "return_value": samples.result().to_dict(),
            "failed_transfer": samples.result(failed=3).to_dict(),
        }
    )
    assert documents.result == samples.result()


def test_the_lineage_is_shown_as_json() -> None:
    facts = transfer_facts(samples.JOB, PLAN, samples.result())
    shown = page_of(lineage=facts).sections["lineage"].removeprefix("Lineage ")
    assert json.loads(shown) == json.loads(json.dumps(facts))


def attacked() -> dict[str, Any]:
    """Documents with an attack in each text that others choose."""
    failures = (FailedObject(f"s3://src/{ATTACK}", f"s3://dst/{ATTACK}", "c", ATTACK, 1),)
    result: TransferResult = samples.result(
        failed=1, failures=failures, error=ATTACK, warnings=(ATTACK,), manifest_uri=ATTACK,
        source=f"s3://src/{ATTACK}", destination=f"s3://dst/{ATTACK}",
    )  # fmt: skip
    job = replace(samples.JOB, source=Location(f"s3://src/{ATTACK}", A))
    plan = replace(PLAN, notes=(ATTACK,), binding=(ATTACK,), src=ATTACK)
    return {
        "plan": {"return_value": plan.to_dict()},
        "fleet": {"return_value": replace(fleet(), plan=plan, deployment=ATTACK).to_dict()},
        "transfer": {"failed_transfer": result.to_dict()},
        "lineage": {"lineage": transfer_facts(job, plan, result)},
        "problem": {"return_value": {"gateways": ATTACK}},
    }


@pytest.mark.parametrize("name", attacked())
def test_no_text_is_taken_for_html(name: str) -> None:
    page = Reader(report_page(ATTACK, documents_of(attacked()[name])))
    tags = {tag for tag, _ in page.elements}
    assert tags.isdisjoint({"script", "img"})
    for _, attributes in page.elements:
        assert not [key for key in attributes if key.startswith("on")]
    assert ATTACK in "".join(page.sections.values())


def test_plans_and_results_show_themselves_in_a_notebook() -> None:
    assert "<svg" in PLAN._repr_html_()
    failed = samples.result(failed=1)
    (failure,) = failed.failures
    shown = replace(failed, failures=(replace(failure, source=ATTACK),))._repr_html_()
    assert "it is gone" in shown
    assert {tag for tag, _ in Reader(shown).elements}.isdisjoint({"script", "img", "html"})


def test_only_a_plan_task_shows_the_plan_in_place_of_its_own() -> None:
    """Two provision tasks may have one plan, and only one of them another in place of it."""
    running = replace(PLAN, replaces=PLAN.shape, throughput_gbps=1.5)
    in_place = {"provision": PlanInPlace(refused=PLAN, running=running).to_dict()}
    assert documents_of({"return_value": PLAN.to_dict()}, in_place).plan == running
    assert documents_of({"return_value": fleet().to_dict()}, in_place).plan == PLAN
    other = replace(PLAN, volume_gb=7.0)
    assert documents_of({"return_value": other.to_dict()}, in_place).plan == other
    (problem,) = documents_of({}, {"provision": {"refused": 1}}).problems
    assert problem.startswith("provision: ")


@pytest.mark.parametrize("value", [None, "text", 7, [], {}, {"stopped": []}, {"edges": []}])
def test_other_values_are_no_documents(value: Any) -> None:
    documents = documents_of({"return_value": value})
    assert documents == TaskDocuments()
    assert documents.is_empty


def test_a_document_of_another_release_is_named_and_not_shown() -> None:
    page = page_of({**PLAN.to_dict(), "schema_version": 99})
    assert "schema_version 99 cannot be read" in "".join(page.sections.values())
    assert "svg" not in [tag for tag, _ in page.elements]
