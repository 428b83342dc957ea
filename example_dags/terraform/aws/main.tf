# What fleets on AWS need and never make themselves: the policy of the orchestrator, and the role of
# sources and sinks. A region's network is the module ./network.

terraform {
  required_version = ">= 1.3"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.0"
    }
  }
}

locals {
  # The actions stand in the documentation, where a test compares them with the code.
  permissions = file("${path.module}/../../../docs/reference/permissions/aws.json")
  policy = replace(
    replace(local.permissions, "DEPLOYMENT", var.deployment),
    "role/skyplane-gateway", "role/${var.gateway_role}"
  )
  objects = ["s3:GetObject", "s3:GetObjectTagging"]
  writes = [
    "s3:AbortMultipartUpload",
    "s3:DeleteObject",
    "s3:ListMultipartUploadParts",
    "s3:PutObject",
  ]
}

resource "aws_iam_policy" "fleets" {
  name        = "skyplane-fleets-${var.deployment}"
  description = "Launches and ends the gateways of skyplane-orchestration"
  policy      = local.policy
}

resource "aws_iam_role_policy_attachment" "orchestrator" {
  count      = var.orchestrator_role == "" ? 0 : 1
  role       = var.orchestrator_role
  policy_arn = aws_iam_policy.fleets.arn
}

resource "aws_iam_role" "gateway" {
  name = var.gateway_role
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = "ec2.amazonaws.com" }
    }]
  })
}

resource "aws_iam_role_policy" "buckets" {
  name = "buckets"
  role = aws_iam_role.gateway.id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = concat(
      [{
        Effect   = "Allow"
        Action   = ["s3:ListBucket", "s3:ListBucketMultipartUploads"]
        Resource = [for name in concat(var.source_buckets, var.destination_buckets) : "arn:aws:s3:::${name}"]
      }],
      [for name in var.source_buckets : {
        Effect   = "Allow"
        Action   = local.objects
        Resource = "arn:aws:s3:::${name}/*"
      }],
      [for name in var.destination_buckets : {
        Effect   = "Allow"
        Action   = concat(local.objects, local.writes)
        Resource = "arn:aws:s3:::${name}/*"
      }],
    )
  })
}

resource "aws_iam_instance_profile" "gateway" {
  name = var.gateway_role
  role = aws_iam_role.gateway.name
}
