variable "repository" {
  description = "The git repository to build, as an https address without a password or token in it."
  type        = string

  validation {
    condition     = can(regex("^https://[^@\\s]+$", var.repository))
    error_message = "Give an https address such as https://huggingface.co/me/my-kernel. It may hold no user, password or token: what is written here ends in Terraform's state."
  }
}

variable "revision" {
  description = "The branch, tag or commit to build; null is the repository's default branch."
  type        = string
  default     = null

  validation {
    condition     = var.revision == null || can(regex("^[A-Za-z0-9_][A-Za-z0-9._/-]*$", var.revision))
    error_message = "Give the name of a branch or tag, or a commit."
  }
}

variable "directory" {
  description = "The directory of build.toml in the repository."
  type        = string
  default     = "."

  validation {
    condition     = can(regex("^[A-Za-z0-9._][A-Za-z0-9._/-]*$", var.directory)) && !contains(split("/", var.directory), "..")
    error_message = "Give a relative path in the repository, without '..'."
  }
}

variable "build_arguments" {
  description = "What follows 'kernel-builder build', one word in each element."
  type        = list(string)
  default     = ["--complete", "--keep-going"]
}

variable "kernel_builder" {
  description = "What install.sh installs: a requirement such as kernel-builder==0.1.0, or the address of a wheel."
  type        = string
  default     = "kernel-builder"

  validation {
    condition     = can(regex("^[A-Za-z0-9]", var.kernel_builder)) && !can(regex("://[^/]*@", var.kernel_builder))
    error_message = "Give a requirement as pip takes it, without a user, password or token: what is written here ends in Terraform's state."
  }
}

variable "name" {
  description = "The name of everything that is made."
  type        = string
  default     = "kernel-builder"

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{1,30}[a-z0-9]$", var.name))
    error_message = "Use 3 to 32 lower-case letters, digits and hyphens; begin with a letter and do not end with a hyphen."
  }
}

variable "instance_type" {
  description = "The machine. A build needs no GPU; it takes all processors, and about 1.5 GB of memory for each."
  type        = string
  default     = "c7i.4xlarge"
}

variable "architecture" {
  description = "The processor of instance_type: x86_64 or arm64."
  type        = string
  default     = "x86_64"

  validation {
    condition     = contains(["x86_64", "arm64"], var.architecture)
    error_message = "Use x86_64 or arm64."
  }
}

variable "disk_gb" {
  description = "The size of the disk in GB. Toolchains of all CUDA versions take about 5."
  type        = number
  default     = 50

  validation {
    condition     = var.disk_gb >= 20 && floor(var.disk_gb) == var.disk_gb
    error_message = "Use a whole number of at least 20."
  }
}

variable "subnet_id" {
  description = "The subnet, with a way to the internet; null is one of the default VPC."
  type        = string
  default     = null
}

variable "ssh_public_key" {
  description = "A public key for the user admin. Without it nobody can log in by SSH; Session Manager works in any case."
  type        = string
  default     = null

  validation {
    condition     = var.ssh_public_key == null || can(regex("^(ssh-ed25519|ssh-rsa|ecdsa-sha2-[a-z0-9-]+) ", var.ssh_public_key))
    error_message = "Give one line of a public key file, such as ~/.ssh/id_ed25519.pub; never a private key."
  }
}

variable "ssh_from" {
  description = "Networks that may connect by SSH, such as 203.0.113.7/32. None by default."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for network in var.ssh_from : can(cidrhost(network, 0)) && !endswith(network, "/0")])
    error_message = "Give networks as ADDRESS/BITS. The whole internet (/0) is refused."
  }
}

variable "results_bucket" {
  description = "The S3 bucket that variants and the log are copied to, below NAME/; null leaves them on the machine."
  type        = string
  default     = null
}

variable "hub_token_parameter" {
  description = "The name of an SSM parameter (SecureString) with a Hub token. The machine reads it and uploads what it built; Terraform never sees the token. null: nothing is uploaded."
  type        = string
  default     = null

  validation {
    condition     = var.hub_token_parameter == null || can(regex("^/[A-Za-z0-9_./-]+$", var.hub_token_parameter))
    error_message = "Give the parameter's name, such as /kernel-builder/hub-token, not the token."
  }
}

variable "stop_when_done" {
  description = "Whether the machine stops after the build. Its disk is kept, and paid for, until 'terraform destroy'."
  type        = bool
  default     = true
}
