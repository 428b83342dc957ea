"""The demo of gateways on cloud instances: `python example_dags/run_instances_demo.py`.

It copies a data set from S3 to Google Cloud Storage over a relay in Azure. The gateways run on
instances of three fake clouds on this machine: the fakes check what the real ones check, and each
instance boots the user data that its cloud was sent, as real processes. The exit code is 0 only if
both ends are equal, the clouds have nothing left, no firewall was wider than needed, and what real
clouds would bill (`strict_clouds/bill.py`) is within 3 % of two figures: the cost that the plan
estimates, and the cost that the run states. Fakes boot faster than real clouds. So the clouds file
says how long they take, as a user with an own image would (`provision_s`).

The stores are moto and fake-gcs-server (Go builds it once).
"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from example_dags.demo_support.commands import answer_of_command, run_command
from example_dags.demo_support.cost_table import cost_lines, deviations
from example_dags.demo_support.dataset import demo_data_set
from example_dags.demo_support.estimate import cause_lines, measured_times
from example_dags.demo_support.fake_clouds import FakeClouds, fake_clouds
from example_dags.demo_support.servers import End, s3_server
from tests.clouds.gateways import needless_rules
from tests.faults import fake_gcs

from skyplane_orchestration.model.plan import TransferPlan

SOURCE_REGION, TARGET_REGION = "aws:ap-southeast-2", "gcp:europe-west1"
#: No direct path reaches it with one instance, and a relay in the west of the USA does.
RATE_GBPS: Final = 3.2
#: Of the plan's estimate and of the stated cost, from the bill. The estimate counts the headers of
#: packets, 3.6 % of the egress, and the fakes bill the bytes alone.
MOST_DEVIATION: Final = 0.05


def main() -> int:
    data = demo_data_set()
    with tempfile.TemporaryDirectory(prefix="instances-demo-") as name, ExitStack() as stack:
        directory = Path(name)
        (directory / "run").mkdir(mode=0o700)
        region = SOURCE_REGION.partition(":")[2]
        clouds = stack.enter_context(fake_clouds(directory / "machines", region))
        clouds.write_settings(directory / "clouds.json")
        s3_url = stack.enter_context(s3_server(directory / "s3.log"))
        source = End(SOURCE_REGION, s3_url, "sydney", "events/", directory / "s3.log")
        client = source.client()
        client.create_bucket(
            Bucket=source.bucket, CreateBucketConfiguration={"LocationConstraint": "ap-southeast-2"}
        )
        data.write(client, source.bucket, source.prefix)
        gcs_log = directory / "gcs.log"
        gcs_url = stack.enter_context(fake_gcs.running(gcs_log, logs_requests=True))
        fake_gcs.create_bucket(gcs_url, "belgium")
        ends = [source.url, "gs://belgium/events/"]
        ends += ["--src-endpoint", s3_url, "--dst-endpoint", gcs_url]
        regions = ["--src-region", SOURCE_REGION, "--dst-region", TARGET_REGION]
        rate = ["--instance-limit", "1", "--min-throughput-gbps", str(RATE_GBPS)]
        # By expected rates, so that one relay is enough.
        rate += ["--confidence", "0.5", "--allow-regions", "azure:*"]
        fleet = ["--provisioner", "cloud", "--clouds", str(directory / "clouds.json")]
        fleet += ["--deployment", "demo"]
        environment = _environment(directory)
        planned = answer_of_command(environment, "plan", *ends, *regions, *rate, *fleet)
        plan = TransferPlan.from_dict(planned)
        logs = {"aws": directory / "s3.log", "gcp": gcs_log}
        before = {cloud: len(path.read_text()) for cloud, path in logs.items()}
        copy = ["cp", "-r", *ends, *regions, *rate, *fleet, "--gateways", "always"]
        result = answer_of_command(environment, *copy)
        said = {cloud: path.read_text()[before[cloud] :] for cloud, path in logs.items()}
        run_command(environment, "verify", "-r", *ends)
        bill = clouds.bill(said)
        times = measured_times(bill, result["seconds"])
        print(*cost_lines(plan, result, bill), *cause_lines(plan, bill, times), sep="\n")
        # Not a number is no small deviation either.
        is_right = all(abs(one) <= MOST_DEVIATION for one in deviations(plan, result, bill))
        if not is_right:
            print(f"problem: a figure is more than {MOST_DEVIATION:.0%} from the bill")
        return _report(clouds) or int(not is_right)


def _report(clouds: FakeClouds) -> int:
    """Print what was launched, what is left, and rules of firewalls that are too wide.

    1 if there is such a thing, or no relay was in Azure.
    """
    relays = len(clouds.arm.machines.ever_placed)
    left, running = clouds.left(), clouds.running()
    print(
        f"{len(clouds.world.machines)} instances booted from their user data, {relays} in Azure;"
        f" {running} machines run"
    )
    print("left in the clouds: " + ", ".join(f"{count} {kind}" for kind, count in left.items()))
    needless = needless_rules(clouds.world)
    rules = sum(len(machine.firewall.rules) for machine in clouds.world.machines)
    print(f"{rules} rules of firewalls, {len(needless)} of them wider than needed")
    for one in needless:
        print(f"problem: {one}")
    is_clean = not any(left.values()) and not running and rules and not needless
    return 0 if is_clean and relays else 1


def _environment(directory: Path) -> dict[str, str]:
    return {
        **os.environ,
        "AWS_ACCESS_KEY_ID": "demo",
        "AWS_SECRET_ACCESS_KEY": "demo",
        "AWS_EC2_METADATA_DISABLED": "true",
        "XDG_CONFIG_HOME": str(directory / "config"),
        "XDG_RUNTIME_DIR": str(directory / "run"),
    }


if __name__ == "__main__":
    sys.exit(main())
