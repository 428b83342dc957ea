"""Commands written in Go that tests and benches run; `go_programs` says how they are found."""

from __future__ import annotations

from typing import Final

from tests.faults.go_programs import Program

RCLONE: Final = Program("rclone", "github.com/rclone/rclone@v1.76.0", "SKYPLANE_TEST_RCLONE")

#: Formats Terraform's files.
HCLFMT: Final = Program("hclfmt", "github.com/hashicorp/hcl/v2/cmd/hclfmt@v2.24.0", "HCLFMT")
