"""The shuffler: rounds as a state machine, its web application and its relay to the analyzer."""
