# A network for gateways in one region: public subnets in several zones, and the free endpoint of S3.
# Security groups are not here: each fleet makes its own.

terraform {
  required_version = ">= 1.3"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.0"
    }
  }
}

variable "cidr" {
  description = "Range of the VPC, at least a /24. Ranges of networks that are peered must differ."
  type        = string
}

variable "zones" {
  description = "Number of availability zones with a subnet."
  type        = number
  default     = 3
}

data "aws_region" "here" {}

data "aws_availability_zones" "here" {
  state = "available"
}

resource "aws_vpc" "gateways" {
  cidr_block           = var.cidr
  enable_dns_hostnames = true
  tags                 = { Name = "skyplane-gateways" }
}

resource "aws_internet_gateway" "gateways" {
  vpc_id = aws_vpc.gateways.id
}

resource "aws_route_table" "gateways" {
  vpc_id = aws_vpc.gateways.id

  route {
    cidr_block = "0.0.0.0/0"
    gateway_id = aws_internet_gateway.gateways.id
  }
}

resource "aws_subnet" "gateways" {
  count             = var.zones
  vpc_id            = aws_vpc.gateways.id
  availability_zone = data.aws_availability_zones.here.names[count.index]
  cidr_block        = cidrsubnet(var.cidr, 3, count.index)
}

resource "aws_route_table_association" "gateways" {
  count          = var.zones
  subnet_id      = aws_subnet.gateways[count.index].id
  route_table_id = aws_route_table.gateways.id
}

resource "aws_vpc_endpoint" "s3" {
  vpc_id          = aws_vpc.gateways.id
  service_name    = "com.amazonaws.${data.aws_region.here.name}.s3"
  route_table_ids = [aws_route_table.gateways.id]
}

output "subnets" {
  description = "The setting subnets of the section aws, for this region."
  value       = { "aws:${data.aws_region.here.name}" = aws_subnet.gateways[*].id }
}
