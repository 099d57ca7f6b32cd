# One machine that installs kernel-builder, builds the kernel of a repository, and stops.

data "aws_region" "here" {}
data "aws_caller_identity" "me" {}
data "aws_partition" "here" {}

# Debian's own images: https://wiki.debian.org/Cloud/AmazonEC2Image
data "aws_ami" "debian" {
  most_recent = true
  owners      = ["136693071363"]

  filter {
    name   = "name"
    values = ["debian-13-${var.architecture == "x86_64" ? "amd64" : "arm64"}-*"]
  }

  filter {
    name   = "virtualization-type"
    values = ["hvm"]
  }
}

data "aws_subnet" "chosen" {
  count = var.subnet_id == null ? 0 : 1
  id    = var.subnet_id
}

data "aws_vpc" "default" {
  count   = var.subnet_id == null ? 1 : 0
  default = true
}

locals {
  vpc_id    = var.subnet_id == null ? data.aws_vpc.default[0].id : data.aws_subnet.chosen[0].vpc_id
  parameter = var.hub_token_parameter == null ? "" : var.hub_token_parameter

  # JSON is YAML: whatever a value holds, it stays one word there.
  command = concat(
    ["runuser", "-u", "builder", "--", "/usr/local/bin/build-kernel"],
    [var.repository, var.revision == null ? "" : var.revision, var.directory],
    var.build_arguments,
  )
  user_data = templatefile("${path.module}/user-data.yaml.tftpl", {
    install_script = base64encode(file("${path.module}/../install.sh"))
    build_script   = base64encode(file("${path.module}/build-kernel"))
    environment = base64encode(join("\n", [
      "KERNEL_BUILDER_REQUIREMENT=${var.kernel_builder}",
      "AWS_DEFAULT_REGION=${data.aws_region.here.id}",
      "HUB_TOKEN_PARAMETER=${local.parameter}",
      "RESULTS=${var.results_bucket == null ? "" : "s3://${var.results_bucket}/${var.name}"}",
      "",
    ]))
    packages   = jsonencode(concat(["ca-certificates", "debian-archive-keyring", "g++", "git", "gpgv", "python3", "python3-venv"], local.parameter == "" && var.results_bucket == null ? [] : ["awscli"]))
    command    = jsonencode(local.command)
    when_ended = jsonencode(var.stop_when_done ? ["systemctl", "poweroff", "--no-block"] : ["true"])
  })
}

resource "aws_security_group" "machine" {
  name_prefix = "${var.name}-"
  description = "kernel-builder: out to package indexes, in by SSH from named networks only"
  vpc_id      = local.vpc_id
  tags        = { Name = var.name }

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_vpc_security_group_egress_rule" "out" {
  security_group_id = aws_security_group.machine.id
  description       = "package indexes, the repository, the Hub"
  ip_protocol       = "-1"
  cidr_ipv4         = "0.0.0.0/0"
}

resource "aws_vpc_security_group_ingress_rule" "ssh" {
  for_each = toset(var.ssh_from)

  security_group_id = aws_security_group.machine.id
  description       = "SSH"
  ip_protocol       = "tcp"
  from_port         = 22
  to_port           = 22
  cidr_ipv4         = each.value
}

resource "aws_key_pair" "admin" {
  count = var.ssh_public_key == null ? 0 : 1

  key_name_prefix = "${var.name}-"
  public_key      = var.ssh_public_key
}

resource "aws_iam_role" "machine" {
  name_prefix = "${var.name}-"
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = "ec2.amazonaws.com" }
    }]
  })
}

resource "aws_iam_role_policy_attachment" "session_manager" {
  role       = aws_iam_role.machine.name
  policy_arn = "arn:${data.aws_partition.here.partition}:iam::aws:policy/AmazonSSMManagedInstanceCore"
}

resource "aws_iam_role_policy" "token" {
  count = var.hub_token_parameter == null ? 0 : 1

  name = "read-hub-token"
  role = aws_iam_role.machine.id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect   = "Allow"
      Action   = "ssm:GetParameter"
      Resource = "arn:${data.aws_partition.here.partition}:ssm:${data.aws_region.here.id}:${data.aws_caller_identity.me.account_id}:parameter${var.hub_token_parameter}"
    }]
  })
}

resource "aws_iam_role_policy" "results" {
  count = var.results_bucket == null ? 0 : 1

  name = "write-results"
  role = aws_iam_role.machine.id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect   = "Allow"
      Action   = "s3:PutObject"
      Resource = "arn:${data.aws_partition.here.partition}:s3:::${var.results_bucket}/${var.name}/*"
    }]
  })
}

resource "aws_iam_instance_profile" "machine" {
  name_prefix = "${var.name}-"
  role        = aws_iam_role.machine.name
}

resource "aws_instance" "machine" {
  ami                                  = data.aws_ami.debian.id
  instance_type                        = var.instance_type
  subnet_id                            = var.subnet_id
  vpc_security_group_ids               = [aws_security_group.machine.id]
  iam_instance_profile                 = aws_iam_instance_profile.machine.name
  key_name                             = one(aws_key_pair.admin[*].key_name)
  instance_initiated_shutdown_behavior = "stop"
  user_data_base64                     = base64gzip(local.user_data)
  user_data_replace_on_change          = true
  tags                                 = { Name = var.name }

  # Only the machine itself can ask for its role's keys, and only with a session.
  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
  }

  root_block_device {
    volume_size = var.disk_gb
    volume_type = "gp3"
    encrypted   = true
    tags        = { Name = var.name }
  }
}
