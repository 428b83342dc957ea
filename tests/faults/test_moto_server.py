from __future__ import annotations

import boto3
from tests.faults import moto_server


def test_a_server_starts_without_the_buckets_of_an_earlier_one() -> None:
    for _ in range(2):
        with moto_server.running() as url:
            client = boto3.client(
                "s3",
                endpoint_url=url,
                region_name="us-east-1",
                aws_access_key_id="testing",
                aws_secret_access_key="testing",
            )
            assert "of-one-server" not in {one["Name"] for one in client.list_buckets()["Buckets"]}
            client.create_bucket(Bucket="of-one-server")
