"""Bad examples for the attacker: releases that somebody might have thought safe. All people are made up."""
