"""The enroller: says once per person that somebody is a person."""
