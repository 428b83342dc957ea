output "instance_profile" {
  description = "The setting instance_profile of the section aws."
  value       = aws_iam_instance_profile.gateway.name
}

output "policy_arn" {
  description = "The policy of the orchestrator's credentials."
  value       = aws_iam_policy.fleets.arn
}
