output "instance_id" {
  description = "The machine."
  value       = aws_instance.machine.id
}

output "public_ip" {
  description = "Its address, if it has one."
  value       = aws_instance.machine.public_ip
}

output "shell" {
  description = "A command that opens a shell on the machine while it runs."
  value       = "aws ssm start-session --region ${data.aws_region.here.id} --target ${aws_instance.machine.id}"
}

output "log" {
  description = "A command that shows what the machine wrote to its console, the build's end among it."
  value       = "aws ec2 get-console-output --region ${data.aws_region.here.id} --latest --output text --instance-id ${aws_instance.machine.id}"
}

output "results" {
  description = "Where variants and the log are, once the build has ended."
  value       = var.results_bucket == null ? "/home/builder/work/${var.directory}/build on the machine" : "s3://${var.results_bucket}/${var.name}/"
}
